#include "tests/calibrate/import/ddp_scaling.h"

#include <algorithm>
#include <cmath>

#include "calibrate/import/step_times/step_time_draws.h"
#include "costmodel/io/csv_table.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/model/tensor_list.h"
#include "tests/costmodel/helpers.h"
#include "tests/test_data.h"

namespace stepsim::test {
namespace {

/// The published tables write one digit a node.
std::string with_plus(std::string_view digits) {
  std::string text;
  for (const char digit : digits) {
    text += text.empty() ? "" : "+";
    text += digit;
  }
  return text;
}

/// Adds a kernel and its batch norm.
void add_convolution(std::vector<TensorBlock>& tensors, std::vector<std::int64_t> shape) {
  const std::string name = "layer" + std::to_string(tensors.size());
  const std::int64_t channels = shape.front();
  tensors.push_back({name + ".weight", shape, assumed_work(shape), assumed_work(shape)});
  for (const char* part : {".bn.weight", ".bn.bias"}) {
    tensors.push_back({name + part, {channels}, 0, 0});
  }
}

/// ResNet-18 for 32 x 32 images: 11,173,962 parameters.
std::vector<TensorBlock> resnet18() {
  std::vector<TensorBlock> tensors;
  add_convolution(tensors, {64, 3, 3, 3});
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    for (int block = 0; block < 2; ++block) {
      add_convolution(tensors, {out, in, 3, 3});
      add_convolution(tensors, {out, out, 3, 3});
      if (in != out) {
        add_convolution(tensors, {out, in, 1, 1});
      }
      in = out;
    }
  }
  tensors.push_back({"fc.weight", {10, 512}, 1, 1});
  tensors.push_back({"fc.bias", {10}, 0, 0});
  return tensors;
}

/// The shipped list of ResNet-50's tensors, with work as the importer assumes it.
std::vector<TensorBlock> resnet50() {
  auto tensors = read_tensor_list(source_root() + "/scenarios/published/resnet50.csv").tensors;
  for (TensorBlock& tensor : tensors) {
    tensor.forward = tensor.backward = assumed_work(tensor.shape);
  }
  return tensors;
}

TransformerConfig scaling_model(const std::string& name) {
  return name == "bert"      ? model_preset("bert-base")
         : name == "cifar10" ? tensor_chain("resnet18", resnet18())
                             : tensor_chain("resnet50", resnet50());
}

std::size_t group_of(const Placement& placement) {
  return placement.nodes() == 1   ? 0U
         : placement.nodes() == 2 ? 1U
         : placement.nodes() <= 4 ? 2U
                                  : 3U;
}

}  // namespace

std::optional<ScalingTable> scaling_table(const std::string& name) {
  const auto path = data_file("ddp_scaling/" + name + ".csv");
  if (!path) {
    return std::nullopt;
  }
  const CsvTable csv(*path);
  std::string text = "placement,nodes,ranks,batch,step_s,sync_s\n";
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    text += with_plus(csv.text(row, csv.column("placement")));
    for (const char* column : {"nodes", "gpus", "local_batch", "step_s", "sync_s"}) {
      text += "," + std::string(csv.text(row, csv.column(column)));
    }
    text += "\n";
  }
  return ScalingTable{name, read_step_times(written(name + ".csv", text)), scaling_model(name)};
}

const std::set<std::string>& few_placements() {
  static const std::set<std::string> kFew = {"1", "2", "4", "2x1"};
  return kFew;
}

const std::set<std::string>& five_placements() {
  static const std::set<std::string> kFive = {"1", "2", "4", "2x1", "4x1"};
  return kFive;
}

const std::set<std::string>& alone_placement() {
  static const std::set<std::string> kAlone = {"1"};
  return kAlone;
}

StepTimeTable rows_on(const StepTimeTable& table, const std::set<std::string>& placements) {
  StepTimeTable rows = table;
  std::erase_if(rows.rows, [&](const StepTimeRow& row) {
    return !placements.contains(text_of(row.placement));
  });
  return rows;
}

StepTimeFit fit_of(const ScalingTable& table,
                   const StepTimeTable& rows,
                   const std::optional<FittedLinks>& known,
                   std::optional<StepTimeForm> form) {
  const StepTimeJob job =
      step_time_job(rows, table.model, kDefaultFirstBucketBytes, kDefaultBucketCapBytes);
  return fit_step_times(rows, job, known, form);
}

std::array<GroupError, kNodeGroups> group_errors(const ScalingTable& table,
                                                 const StepTimeFit& fit,
                                                 const std::set<std::string>& seen) {
  std::array<GroupError, kNodeGroups> groups;
  std::array<double, kNodeGroups> exposed{};
  const auto draws = drawn_coefficients(fit);
  for (const StepTimeRow& row : table.all.rows) {
    if (seen.contains(text_of(row.placement)) || row.placement.ranks() == 1) {
      continue;
    }
    GroupError& group = groups[group_of(row.placement)];
    const StepTimePrediction predicted =
        predict_step_time(fit, compute_point(fit.job, row), row.placement);
    const auto [low, high] =
        drawn_step(fit, draws, compute_point(fit.job, row), row.placement).interval();
    group.step += std::abs(predicted.parts.step / row.step_s - 1);
    group.exposed += std::abs(predicted.parts.sync - *row.sync_s);
    exposed[group_of(row.placement)] += *row.sync_s - fit.job.rest_s;
    group.covered += low <= row.step_s && row.step_s <= high ? 1 : 0;
    group.width += std::sqrt(high / low) - 1;
    ++group.rows;
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    GroupError& group = groups[i];
    group.exposed /= exposed[i];
    for (double* sum : {&group.step, &group.covered, &group.width}) {
      *sum /= group.rows;
    }
  }
  return groups;
}

}  // namespace stepsim::test
