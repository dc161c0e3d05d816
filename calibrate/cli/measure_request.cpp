#include "calibrate/cli/measure_request.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "calibrate/cli/backend.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/model/model_presets.h"

namespace stepsim {
namespace {

void request_from_plans(const CommandRequest& asked,
                        const MeasureOptions& options,
                        MeasureRequest* request) {
  const std::array<std::pair<const char*, bool>, 4> of_model = {
      {{"max-length", options.max_length.has_value()},
       {"max-tokens", options.max_tokens.has_value()},
       {"dtype", options.dtype.has_value()},
       {"attention", options.attention.has_value()}}};
  for (const auto& [name, given] : of_model) {
    if (given) {
      asked.fail(fmt::format("--{} goes with --model; plans say it themselves", name));
    }
  }
  const std::vector<Plan> plans = mapped(options.plans, read_plan);
  request->box = box_of_plans(plans);
  request->model = plans.front().model;
  request->ranks = options.ranks.value_or(plans.front().ranks);
  request->buckets = plans.front().buckets;
}

Bytes read_bucket_cap(const CommandRequest& asked, const std::string& cap) {
  try {
    return parse_bytes(cap);
  } catch (const InputError& error) {
    asked.fail(std::string("--bucket-cap: ") + error.what());
  }
}

void request_from_model(const CommandRequest& asked,
                        const MeasureOptions& options,
                        MeasureRequest* request) {
  if (!options.model || !options.max_length || !options.max_tokens) {
    asked.fail("give --plan FILE…, or --model NAME with --max-length and --max-tokens");
  }
  request->model = model_preset(*options.model);
  if (options.dtype) {
    request->model.dtype = parse_dtype(*options.dtype);
  }
  if (options.attention) {
    request->model.attention = parse_attention(*options.attention);
  }
  const int all_ranks = request->launched != nullptr         ? request->launched->ranks()
                        : request->device == DeviceKind::Cpu ? 2
                                                             : 1;
  request->ranks = options.ranks.value_or(all_ranks);
  request->box = box_of_limits(request->model, *options.max_length, *options.max_tokens);
  const Bytes first(std::int64_t{1} << 20U);
  request->buckets =
      buckets_by_cap(request->model, first, read_bucket_cap(asked, options.bucket_cap));
}

/// "90" and "90 s" alike.
double parse_budget(const CommandRequest& asked, const std::string& text) {
  const bool is_number = text.find_first_not_of("0123456789.") == std::string::npos;
  double seconds = 0;
  try {
    seconds = to_seconds(parse_duration(is_number ? text + " s" : text));
  } catch (const InputError& error) {
    asked.fail(fmt::format("--budget: {}", error.what()));
  }
  if (!(seconds > 0)) {
    asked.fail("--budget: a time above 0, like \"90 s\" or \"5 min\"");
  }
  return seconds;
}

}  // namespace

std::vector<OptionRow> measure_options() {
  using O = MeasureOptions;
  return {
      option(
          "plan", &O::plans, "FILE…: plans whose batches are to be priced (same model and ranks)")
          .up_to_next_option(),
      option("model", &O::model, "MODEL: model preset, in place of plans"),
      option("max-length", &O::max_length, "NUMBER: with --model, longest padded length"),
      option("max-tokens", &O::max_tokens, "NUMBER: with --model, most padded tokens of a batch"),
      option("dtype", &O::dtype, "f32|tf32|bf16|f16: with --model, of the computation"),
      option("attention", &O::attention, "dense|flash|varlen: with --model"),
      option("ranks",
             &O::ranks,
             "NUMBER: processes that train together (default: the plans', with --model 2 on cpu "
             "and 1 on cuda)"),
      option("bucket-cap", &O::bucket_cap, "SIZE: with --model, gradient buckets to all-reduce"),
      option("device", &O::device, "cpu|cuda|cuda:NUMBER: where"),
      option("budget",
             &O::budget,
             "TIME: to spend on measuring, in seconds or as \"90 s\", \"5 min\""),
      option("seed", &O::seed, "NUMBER: of the order of measurements")};
}

MeasureRequest measure_request(const CommandRequest& asked,
                               const MeasureOptions& options,
                               const std::string& samples,
                               LaunchedGroup* launched) {
  MeasureRequest request;
  request.launched = launched;
  request.device = parse_device(options.device).kind;
  if (options.plans.empty()) {
    request_from_model(asked, options, &request);
  } else if (options.model) {
    asked.fail("give either --plan or --model");
  } else {
    request_from_plans(asked, options, &request);
  }
  if (launched == nullptr && (request.ranks < 1 || request.ranks > 64)) {
    asked.fail("--ranks: 1 to 64 processes on one machine");
  }
  request.budget_seconds = parse_budget(asked, options.budget);
  request.seed = options.seed;
  request.out = samples;
  request.command = asked.command_line();
  request.date = utc_now();
  return request;
}

}  // namespace stepsim
