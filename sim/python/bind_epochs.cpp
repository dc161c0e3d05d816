#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "costmodel/base/content_id.h"
#include "costmodel/base/input_error.h"
#include "sim/batching/epoch_planner.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/step_cost.h"
#include "sim/python/arrays.h"
#include "sim/python/bindings.h"
#include "sim/scenario/scenario.h"

namespace py = pybind11;

namespace stepsim {
namespace {

using LengthArray = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

/// A planner together with what it says of itself.
struct LoaderPlanner {
  std::unique_ptr<const EpochPlanner> planner;
  bool by_time = false;
  bool by_cost = false;  ///< By time, or by padded tokens where no times are known.
  bool cuts = false;
  std::string policy;
  std::uint64_t seed = 0;
};

std::unique_ptr<LoaderPlanner> loader_planner(const GivenScenario& given,
                                              const std::string& policy_name,
                                              const LengthArray& lengths,
                                              int ranks,
                                              const std::string& uneven) {
  std::vector<std::int64_t> tokens(lengths.data(), lengths.data() + lengths.size());
  const py::gil_scoped_release released;
  const Scenario scenario = given.read();
  const BatchingPolicy& policy = find_policy(scenario, policy_name);
  if (policy.played() != nullptr) {
    throw InputError(
        "policy '{}' plays the batches of a file: stepsim.torch.PlanSampler feeds them to a loader",
        policy.name());
  }
  const PlanningCost cost = planning_cost(scenario, policy);
  auto result = std::make_unique<LoaderPlanner>();
  result->by_time = static_cast<bool>(cost.batch);
  result->by_cost = policy.step_cost_use() != StepCostUse::Never;
  result->cuts = policy.cuts();
  result->policy = policy.name();
  result->seed = static_cast<std::uint64_t>(scenario.sampler.seed);
  result->planner = std::make_unique<const EpochPlanner>(
      policy,
      std::move(tokens),
      PlannerOptions{scenario.sampler,
                     ranks,
                     cost.batch,
                     cost.shape_seconds,
                     uneven == "drop"   ? UnevenRanks::Drop
                     : uneven == "idle" ? UnevenRanks::Idle
                                        : UnevenRanks::Repeat});
  return result;
}

py::dict rank_arrays(const PlannedEpoch& epoch, int rank) {
  RankEpoch own;
  {
    const py::gil_scoped_release released;
    own = epoch.rank(rank);
  }
  py::dict result;
  result["offsets"] = to_array(std::move(own.offsets));
  result["samples"] = to_array(std::move(own.samples));
  result["starts"] = to_array(std::move(own.starts));
  result["lengths"] = to_array(std::move(own.lengths));
  result["padded_lengths"] = to_array(std::move(own.padded_lengths));
  result["useful_tokens"] = to_array(std::move(own.useful_tokens));
  result["loss_scales"] = to_array(std::move(own.loss_scales));
  result["all_units"] = to_array(std::move(own.all_units));
  return result;
}

py::tuple rank_visits(const PlannedEpoch& epoch, int rank) {
  std::vector<Piece> visits;
  {
    const py::gil_scoped_release released;
    visits = epoch.visits(rank);
  }
  return py::make_tuple(to_column<std::int64_t>(visits, &Piece::sample),
                        to_column<std::int64_t>(visits, &Piece::offset),
                        to_column<std::int64_t>(visits, &Piece::length));
}

py::array_t<std::int64_t> scenario_lengths(const GivenScenario& given,
                                           const std::string& policy_name) {
  std::vector<std::int64_t> lengths;
  {
    const py::gil_scoped_release released;
    const Scenario scenario = given.read();
    lengths = data_lengths(scenario, find_policy(scenario, policy_name));
  }
  return to_array(std::move(lengths));
}

std::string id_of(const LengthArray& lengths) {
  return content_id({reinterpret_cast<const char*>(lengths.data()),
                     static_cast<std::size_t>(lengths.size()) * sizeof(std::int64_t)});
}

}  // namespace

void bind_epochs(py::module_& core) {
  py::class_<PlannedEpoch>(core, "PlannedEpoch", "The batches of one epoch on all ranks.")
      .def_property_readonly("steps", &PlannedEpoch::steps)
      .def("batches_by_rank", &PlannedEpoch::batches_by_rank)
      .def("rank", rank_arrays, py::arg("rank"))
      .def("visits", rank_visits, py::arg("rank"))
      .def(
          "left_after",
          [](const PlannedEpoch& epoch, std::int64_t steps) {
            return to_array(epoch.left_after(steps));
          },
          py::arg("steps"))
      .def("check_value", &PlannedEpoch::check_value, py::call_guard<py::gil_scoped_release>());
  py::class_<LoaderPlanner>(core, "EpochPlanner", "Plans epochs of a data set by a policy.")
      .def(py::init(&loader_planner),
           py::arg("scenario"),
           py::arg("policy"),
           py::arg("lengths"),
           py::arg("ranks"),
           py::arg("uneven"))
      .def_readonly("by_time", &LoaderPlanner::by_time)
      .def_readonly("by_cost", &LoaderPlanner::by_cost)
      .def_readonly("seed", &LoaderPlanner::seed)
      .def_readonly("cuts", &LoaderPlanner::cuts)
      .def_readonly("policy", &LoaderPlanner::policy)
      .def(
          "epoch",
          [](const LoaderPlanner& self, int number) { return self.planner->epoch(number); },
          py::arg("number"),
          py::call_guard<py::gil_scoped_release>(),
          py::keep_alive<0, 1>());
  core.def("data_lengths", scenario_lengths, py::arg("scenario"), py::arg("policy"));
  core.def("lengths_id", id_of, py::arg("lengths"), "A check value of an array of lengths.");
}

}  // namespace stepsim
