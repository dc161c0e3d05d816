#include "costmodel/records/plan_file.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_lines.h"
#include "costmodel/model/transformer_json.h"

namespace stepsim {
namespace {

constexpr std::string_view kPlanFormat = "stepsim-plan/1";
/// A length beyond this is a mistake; its square still fits a double exactly.
constexpr std::int64_t kLongestSample = 1 << 26;
/// The limit for a sample that runs in parts.
constexpr std::int64_t kLongestCut = 1 << 30;

using Buckets = std::vector<std::vector<int>>;

std::string buckets_text(const Buckets& buckets) {
  std::string result = "[";
  for (const auto& bucket : buckets) {
    result += fmt::format("{}[{}]", result.size() > 1 ? "," : "", fmt::join(bucket, ","));
  }
  return result + "]";
}

Json ddp_json(const PlanDdp& ddp) {
  return {{"bucket_limits", ddp.bucket_limits},
          {"set_to_none", ddp.set_to_none},
          {"gradient_as_bucket_view", ddp.gradient_as_bucket_view},
          {"find_unused_parameters", ddp.find_unused_parameters},
          {"static_graph", ddp.static_graph},
          {"broadcast_buffers", ddp.broadcast_buffers},
          {"communication_hook", ddp.communication_hook},
          {"other_keys", ddp.other_keys}};
}

PlanDdp read_ddp(JsonReader reader) {
  PlanDdp ddp;
  ddp.bucket_limits = reader.integers("bucket_limits");
  ddp.set_to_none = reader.boolean_or("set_to_none", ddp.set_to_none);
  ddp.gradient_as_bucket_view = reader.boolean_or("gradient_as_bucket_view", false);
  ddp.find_unused_parameters = reader.boolean_or("find_unused_parameters", false);
  ddp.static_graph = reader.boolean_or("static_graph", false);
  ddp.broadcast_buffers = reader.boolean_or("broadcast_buffers", ddp.broadcast_buffers);
  ddp.communication_hook = reader.text_or("communication_hook", ddp.communication_hook);
  ddp.other_keys = reader.texts("other_keys");
  return ddp;
}

std::string plan_header(const Plan& plan) {
  return fmt::format(
      R"({{"format":"{}","scenario":{},"policy":{},{}"seed":{},"ranks":{},"steps":{},)"
      R"("warmup_steps":{},"optimizer":{},{}"model":{},"initial_buckets":{},"buckets":{}}})"
      "\n",
      kPlanFormat,
      json_text(plan.scenario),
      json_text(plan.policy),
      plan.profile.empty() ? ""
                           : fmt::format(R"("profile":{},"profile_id":{},)",
                                         json_text(plan.profile),
                                         json_text(plan.profile_id)),
      plan.seed,
      plan.ranks,
      plan.steps,
      plan.warmup_steps,
      json_text(plan.optimizer),
      plan.ddp ? fmt::format(R"("ddp":{},)", ddp_json(*plan.ddp).dump()) : "",
      to_json(plan.model).dump(-1, ' ', false, Json::error_handler_t::replace),
      buckets_text(plan.initial_buckets),
      buckets_text(plan.buckets));
}

void append_row(std::string& text, const MicroBatch& row) {
  const BatchShape shape = row.shape();
  const std::string offsets =
      row.offsets.empty() ? "" : fmt::format(R"("offsets":[{}],)", fmt::join(row.offsets, ","));
  const std::string targets =
      row.targets.empty() ? ""
                          : fmt::format(R"("target_lengths":[{}],)", fmt::join(row.targets, ","));
  fmt::format_to(std::back_inserter(text),
                 R"({{"step":{},"rank":{},"micro_batch":{},"samples":[{}],"lengths":[{}],{}{})"
                 R"("max_length":{},"useful_tokens":{},"padded_tokens":{},{}"loss_scale":{}}})"
                 "\n",
                 row.step,
                 row.rank,
                 row.micro_batch,
                 fmt::join(row.samples, ","),
                 fmt::join(row.lengths, ","),
                 offsets,
                 targets,
                 shape.max_length,
                 shape.useful_tokens,
                 shape.padded_tokens(),
                 row.sequences.empty()
                     ? ""
                     : fmt::format(R"("sequences":[{}],)", fmt::join(row.sequences, ",")),
                 json_number(row.loss_scale));
}

/// Checks that the buckets hold every parameter of the model exactly once.
Buckets read_plan_buckets(JsonReader& header, std::string_view key, std::size_t parameter_total) {
  std::vector<bool> seen(parameter_total, false);
  Buckets buckets;
  const Json& lists = header.get(key);
  if (!lists.is_array()) {
    header.fail(key, "expected an array of arrays of parameter indices");
  }
  for (const Json& list : lists) {
    if (!list.is_array() || list.empty()) {
      header.fail(key, buckets.size(), "expected an array of parameter indices");
    }
    auto& bucket = buckets.emplace_back();
    for (const Json& index : list) {
      if (!index.is_number_unsigned() || index.get<std::uint64_t>() >= parameter_total) {
        header.fail(key,
                    buckets.size() - 1,
                    fmt::format("{} is no parameter index of the model (0..{})",
                                printable(index.dump(-1, ' ', true), 40),
                                parameter_total - 1));
      }
      const auto parameter = index.get<std::size_t>();
      if (seen[parameter]) {
        header.fail(key, buckets.size() - 1, fmt::format("parameter {} is twice", parameter));
      }
      seen[parameter] = true;
      bucket.push_back(static_cast<int>(parameter));
    }
  }
  if (const auto lost = std::ranges::find(seen, false); lost != seen.end()) {
    header.fail(key, fmt::format("parameter {} is in no bucket", lost - seen.begin()));
  }
  return buckets;
}

Plan read_plan_header(JsonReader header) {
  Plan plan;
  plan.scenario = header.text("scenario");
  plan.policy = header.text("policy");
  plan.profile = header.text_or("profile", "");
  plan.profile_id = header.text_or("profile_id", "");
  plan.seed = header.unsigned_integer("seed");
  plan.ranks = header.integer_in("ranks", 1, kMaxInt);
  plan.steps = header.integer_in("steps", 1, kMaxInt);
  plan.warmup_steps = header.integer_in("warmup_steps", 0, plan.steps - 1);
  plan.optimizer = header.text("optimizer");
  if (header.has("ddp")) {
    plan.ddp = read_ddp(header.object("ddp"));
  }
  JsonReader model = header.object("model");
  plan.model = transformer_from_json(model);
  const std::size_t parameter_total = parameters(plan.model).size();
  plan.initial_buckets = read_plan_buckets(header, "initial_buckets", parameter_total);
  plan.buckets = read_plan_buckets(header, "buckets", parameter_total);
  return plan;
}

void check_total(JsonReader& row, std::string_view key, std::int64_t from_lengths) {
  const std::int64_t stated = row.integer(key);
  if (stated != from_lengths) {
    row.fail(key, fmt::format("{} does not agree with the lengths ({})", stated, from_lengths));
  }
}

void check_lengths(JsonReader& row,
                   std::string_view key,
                   const std::vector<std::int64_t>& lengths) {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1 || lengths[i] > kLongestSample) {
      row.fail(key, i, fmt::format("{} is outside 1..{}", lengths[i], kLongestSample));
    }
  }
}

/// Reads a list of lengths, one for each sample.
std::vector<std::int64_t> read_batch_lengths(JsonReader& row,
                                             std::string_view key,
                                             std::size_t samples) {
  std::vector<std::int64_t> lengths = row.integers(key);
  if (lengths.size() != samples) {
    row.fail(key, fmt::format("{} lengths for {} samples", lengths.size(), samples));
  }
  check_lengths(row, key, lengths);
  return lengths;
}

/// Reads where parts of samples start.
std::vector<std::int64_t> read_offsets(JsonReader& row, const std::vector<std::int64_t>& lengths) {
  if (!row.has("offsets")) {
    return {};
  }
  std::vector<std::int64_t> offsets = row.integers("offsets");
  if (offsets.size() != lengths.size()) {
    row.fail("offsets", fmt::format("{} offsets for {} samples", offsets.size(), lengths.size()));
  }
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] > kLongestCut - lengths[i]) {
      row.fail(
          "offsets", i, fmt::format("{} is outside 0..{}", offsets[i], kLongestCut - lengths[i]));
    }
  }
  return offsets;
}

MicroBatch read_row(JsonReader row, const Plan& plan) {
  MicroBatch batch;
  batch.step = row.integer_in("step", 0, plan.steps - 1);
  batch.rank = row.integer_in("rank", 0, plan.ranks - 1);
  batch.micro_batch = row.integer_in("micro_batch", 0, kMaxInt);
  batch.samples = row.integers("samples");
  batch.lengths = read_batch_lengths(row, "lengths", batch.samples.size());
  batch.loss_scale = row.number("loss_scale");
  if (row.has("target_lengths")) {
    batch.targets = read_batch_lengths(row, "target_lengths", batch.samples.size());
  }
  batch.offsets = read_offsets(row, batch.lengths);
  if (row.has("sequences")) {
    batch.sequences = row.integers("sequences");
    check_lengths(row, "sequences", batch.sequences);
    const std::int64_t tokens = batch_shape(batch.lengths).useful_tokens;
    if (batch.shape().useful_tokens != tokens) {
      row.fail("sequences", fmt::format("their sum is not that of the lengths ({})", tokens));
    }
  }
  const std::int64_t padded = row.integer("max_length");
  if (!batch.lengths.empty() && padded > batch.shape().max_length && padded <= kLongestSample) {
    batch.padded_length = padded;
  }
  const BatchShape shape = batch.shape();
  check_total(row, "max_length", shape.max_length);
  check_total(row, "useful_tokens", shape.useful_tokens);
  check_total(row, "padded_tokens", shape.padded_tokens());
  return batch;
}

/// Checks that rows are sorted by step, rank and micro-batch, and that none is missing.
bool follows(const Plan& plan, const MicroBatch& row) {
  if (plan.micro_batches.empty()) {
    return row.step == 0 && row.rank == 0 && row.micro_batch == 0;
  }
  const MicroBatch& last = plan.micro_batches.back();
  if (row.step == last.step && row.rank == last.rank) {
    return row.micro_batch == last.micro_batch + 1;
  }
  const bool step_ends = last.rank + 1 == plan.ranks;
  return row.micro_batch == 0 && row.step == last.step + (step_ends ? 1 : 0) &&
         row.rank == (step_ends ? 0 : last.rank + 1);
}

}  // namespace

Plan read_plan(const std::string& path) {
  JsonLines lines(path, CutLine::Refuse);
  Plan plan = read_plan_header(lines.header(kPlanFormat));
  std::optional<bool> has_targets;
  while (lines.next()) {
    MicroBatch row = read_row(lines.reader(), plan);
    if (!follows(plan, row)) {
      const bool first = plan.micro_batches.empty();
      lines.fail(
          fmt::format("step {}, rank {}, micro_batch {} does not follow {}; rows go by step, "
                      "rank and micro_batch, none left out",
                      row.step,
                      row.rank,
                      row.micro_batch,
                      first ? "the header"
                            : fmt::format("step {}, rank {}, micro_batch {}",
                                          plan.micro_batches.back().step,
                                          plan.micro_batches.back().rank,
                                          plan.micro_batches.back().micro_batch)));
    }
    if (!row.samples.empty()) {
      if (has_targets && *has_targets == row.targets.empty()) {
        lines.fail("target_lengths are in some rows and not in others; expected all or none");
      }
      has_targets = !row.targets.empty();
    }
    plan.micro_batches.push_back(std::move(row));
  }
  const auto& rows = plan.micro_batches;
  if (rows.empty() || rows.back().step + 1 != plan.steps || rows.back().rank + 1 != plan.ranks) {
    lines.fail(fmt::format(
        "the plan ends early: its header declares {} steps of {} ranks", plan.steps, plan.ranks));
  }
  return plan;
}

std::string plan_text(const Plan& plan) {
  std::string text = plan_header(plan);
  for (const auto& row : plan.micro_batches) {
    append_row(text, row);
  }
  return text;
}

void write_plan(const std::string& path, const Plan& plan) {
  write_text_atomically(path, plan_text(plan));
}

}  // namespace stepsim
