#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <pybind11/stl.h>

#include "costmodel/base/mapped.h"
#include "costmodel/records/plan_file.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/record_files.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/step_cost.h"
#include "sim/python/arrays.h"
#include "sim/python/bindings.h"

namespace py = pybind11;

namespace stepsim {
namespace {

template <typename T>
using StepMember = T StepRecord::*;

py::dict columns_of(const RunRecord& record) {
  py::dict columns;
  const auto add = [&](const char* name, auto member) {
    using Value = std::decay_t<decltype(std::invoke(member, record.steps.front()))>;
    columns[name] = to_column<Value>(record.steps, member);
  };
  add("repeat", &StepRecord::repeat);
  add("step", &StepRecord::step);
  add("rank", &StepRecord::rank);
  add("samples", &StepRecord::samples);
  add("max_length", &StepRecord::max_length);
  add("useful_tokens", &StepRecord::useful_tokens);
  add("padded_tokens", &StepRecord::padded_tokens);
  add("micro_batches", &StepRecord::micro_batches);
  add("start_ms", &StepRecord::start_ms);
  add("data_ms", &StepRecord::data_ms);
  add("forward_ms", &StepRecord::forward_ms);
  add("backward_ms", &StepRecord::backward_ms);
  add("wait_ms", &StepRecord::wait_ms);
  add("optimizer_ms", &StepRecord::optimizer_ms);
  add("step_ms", &StepRecord::step_ms);
  add("loss", &StepRecord::loss);
  return columns;
}

py::list buckets_of(const StepRecord& step) {
  py::list buckets;
  for (const BucketRecord& bucket : step.buckets) {
    buckets.append(py::make_tuple(bucket.bytes, bucket.launch_ms, bucket.end_ms));
  }
  return buckets;
}

std::vector<std::pair<std::string, RunRecord>> read_records(const std::vector<std::string>& paths,
                                                            std::vector<std::string>& warnings) {
  std::vector<std::pair<std::string, RunRecord>> records;
  for (RecordFile& file : read_record_files(paths, &warnings)) {
    records.emplace_back(std::move(file.file), std::move(file.record));
  }
  return records;
}

void bind_run_record(py::module_& core) {
  py::class_<RunRecord>(core, "RunRecord", "A run record, as a live run wrote it.")
      .def_readonly("scenario", &RunRecord::scenario)
      .def_readonly("policy", &RunRecord::policy)
      .def_readonly("world_size", &RunRecord::world_size)
      .def_readonly("backend", &RunRecord::backend)
      .def_readonly("device", &RunRecord::device)
      .def_readonly("started_at", &RunRecord::started_at)
      .def_readonly("warmup_steps", &RunRecord::warmup_steps)
      .def_readonly("repeats", &RunRecord::repeats)
      .def_readonly("cores", &RunRecord::cores)
      .def("versions_json", [](const RunRecord& record) { return record.versions->dump(); })
      .def("training_json", [](const RunRecord& record) { return record.training->dump(); })
      .def("columns", columns_of)
      .def("lengths",
           [](const RunRecord& record) { return mapped(record.steps, &StepRecord::lengths); })
      .def("buckets", [](const RunRecord& record) { return mapped(record.steps, buckets_of); })
      .def("write",
           [](const RunRecord& record, const std::string& path) { write_run_record(path, record); })
      .def("__eq__", [](const RunRecord& a, const RunRecord& b) { return a == b; });
  core.def("read_records", [](const std::vector<std::string>& paths) {
    std::vector<std::string> warnings;
    auto records = read_records(paths, warnings);
    return std::make_pair(std::move(records), std::move(warnings));
  });
}

void bind_plan(py::module_& core) {
  py::class_<Plan>(core, "Plan", "The batches of every step and rank of a run.")
      .def_readonly("scenario", &Plan::scenario)
      .def_readonly("policy", &Plan::policy)
      .def_readonly("profile", &Plan::profile)
      .def_readonly("seed", &Plan::seed)
      .def_readonly("ranks", &Plan::ranks)
      .def_readonly("steps", &Plan::steps)
      .def_readonly("warmup_steps", &Plan::warmup_steps)
      .def_readonly("initial_buckets", &Plan::initial_buckets)
      .def_readonly("buckets", &Plan::buckets)
      .def("columns",
           [](const Plan& plan) {
             const std::vector<MicroBatch>& rows = plan.micro_batches;
             const auto shapes =
                 mapped(rows, [](const MicroBatch& batch) { return batch.shape(); });
             py::dict columns;
             columns["step"] = to_column<int>(rows, &MicroBatch::step);
             columns["rank"] = to_column<int>(rows, &MicroBatch::rank);
             columns["micro_batch"] = to_column<int>(rows, &MicroBatch::micro_batch);
             columns["samples"] = to_column<std::int64_t>(
                 rows, [](const MicroBatch& batch) { return batch.samples.size(); });
             columns["max_length"] = to_column<std::int64_t>(shapes, &BatchShape::max_length);
             columns["useful_tokens"] = to_column<std::int64_t>(shapes, &BatchShape::useful_tokens);
             columns["padded_tokens"] = to_column<std::int64_t>(shapes, &BatchShape::padded_tokens);
             columns["loss_scale"] = to_column<double>(rows, &MicroBatch::loss_scale);
             return columns;
           })
      .def("samples",
           [](const Plan& plan) { return mapped(plan.micro_batches, &MicroBatch::samples); })
      .def("lengths",
           [](const Plan& plan) { return mapped(plan.micro_batches, &MicroBatch::lengths); })
      .def("offsets",
           [](const Plan& plan) { return mapped(plan.micro_batches, &MicroBatch::offsets); })
      .def("write", [](const Plan& plan, const std::string& path) { write_plan(path, plan); })
      .def("text", plan_text)
      .def("__eq__", [](const Plan& a, const Plan& b) { return a == b; });
  core.def("read_plan", read_plan, py::arg("path"), py::call_guard<py::gil_scoped_release>());
}

void bind_profile(py::module_& core) {
  py::class_<Profile>(core, "Profile", "The calibration of one machine.")
      .def_readonly("name", &Profile::name)
      .def_property_readonly("id", [](const Profile& profile) { return profile.id.text; })
      .def_readonly("device", &Profile::device)
      .def_readonly("backend", &Profile::backend)
      .def_property_readonly("has_recorded_model",
                             [](const Profile& profile) { return profile.recorded.has_value(); })
      .def_property_readonly("prices_other_models",
                             [](const Profile& profile) { return !profile.ops.empty(); })
      .def("provenance_json", [](const Profile& profile) { return profile.provenance->dump(); })
      .def("all_reduce_ranks",
           [](const Profile& profile) {
             return mapped(profile.collectives, &CollectiveCost::ranks);
           })
      .def("write",
           [](const Profile& profile, const std::string& path) { write_profile(path, profile); });
  core.def("read_profile", read_profile, py::arg("named"));
}

}  // namespace

void bind_records(py::module_& core) {
  core.def("write_text",
           write_text_atomically,
           py::arg("path"),
           py::arg("text"),
           "Writes a whole file at once, so that a full disk spoils nothing.");
  bind_run_record(core);
  bind_plan(core);
  bind_profile(core);
}

}  // namespace stepsim
