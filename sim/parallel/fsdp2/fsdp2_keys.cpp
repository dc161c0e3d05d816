#include "sim/parallel/fsdp2/fsdp2_keys.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/named_units.h"

namespace stepsim {
namespace {

constexpr int kFirstMinor = 4;  // PyTorch 2.4 has the first fully_shard.
constexpr int kLastMinor = 15;

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_number(const std::string& text) {
  constexpr std::size_t kMostDigits = 9;
  return !text.empty() && text.size() <= kMostDigits &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

[[noreturn]] void fail_unknown(const std::string& text, const std::vector<std::string>& known) {
  throw InputError(unknown_name("value", text, known));
}

/// What PyTorch and torchtitan call them.
std::string meant_reshard(const std::string& text) {
  const std::string lower = lower_case(text);
  if (is_number(text)) {
    return std::to_string(std::stoi(text));
  }
  if (lower == "none") {
    return "default";
  }
  if (lower == "true" || lower == "always") {
    return "true";
  }
  if (lower == "false" || lower == "never") {
    return "false";
  }
  fail_unknown(text, {"default", "true", "false", "an integer"});
}

const std::vector<std::string>& dtype_choices() {
  static const std::vector<std::string> kChoices = {"own", "f32", "bf16", "f16"};
  return kChoices;
}

/// "torch.bfloat16", "float32", "None".
std::string meant_dtype(const std::string& text) {
  std::string lower = lower_case(text);
  if (lower == "none") {
    return "own";
  }
  constexpr std::string_view kModule = "torch.";
  lower.erase(0, lower.starts_with(kModule) ? kModule.size() : 0);
  try {
    std::string name(name_of(parse_dtype(lower)));
    if (std::ranges::count(dtype_choices(), name) > 0) {
      return name;
    }
  } catch (const InputError&) {
    // The key's own choices say more than all types that there are.
  }
  fail_unknown(text, dtype_choices());
}

std::vector<std::string> torch_versions() {
  std::vector<std::string> versions;
  for (int minor = kFirstMinor; minor <= kLastMinor; ++minor) {
    versions.push_back(fmt::format("2.{}", minor));
  }
  return versions;
}

/// "newest", "2.13.0".
std::string meant_torch(const std::string& text) {
  const std::vector<std::string> known = torch_versions();
  if (text == "newest") {
    return known.back();
  }
  const std::size_t dot = text.find('.');
  const std::string major = text.substr(0, dot);
  const std::string rest = dot == std::string::npos ? "" : text.substr(dot + 1);
  const std::string minor = rest.substr(0, rest.find('.'));
  std::string version = major + "." + minor;
  if (std::ranges::count(known, version) > 0) {
    return version;
  }
  if (is_number(major) && is_number(minor) &&
      (std::stoi(major) < 2 || (major == "2" && std::stoi(minor) < kFirstMinor))) {
    throw InputError("PyTorch {} has no fully_shard, which came with 2.{}", text, kFirstMinor);
  }
  if (is_number(major) && is_number(minor) &&
      (std::stoi(major) > 2 || std::stoi(minor) > kLastMinor)) {
    throw InputError(
        "PyTorch {} is newer than {}, the newest whose fully_shard is known here: write "
        "\"{}\" or \"newest\", by whose rules it is simulated",
        text,
        known.back(),
        known.back());
  }
  fail_unknown(text, known);
}

/// FSDP1's words.
std::string meant_backward_prefetch(const std::string& text) {
  if (lower_case(text) == "backward_pre") {
    return "0";
  }
  throw InputError(
      "'{}': fully_shard gathers the unit before by itself, as BACKWARD_PRE does: 0; an integer n "
      "is an explicit list of the n units before",
      printable(text));
}

OwnKey units_key() {
  OwnKey key{fsdp2_key::kUnits,
             "what `fully_shard` is called on below the model: `\"blocks\"`; `\"ends\"`: "
             "embeddings and head, too, as torchtitan does; `\"model\"`: nothing, all is one unit; "
             "or [the names of modules](#units-by-name), `\"layers.*; norm + lm_head\"`",
             std::string("blocks")};
  key.choices = {"blocks", "ends", "model"};
  key.meant = [](const std::string& text) { return text; };
  return key;
}

OwnKey reshard_key() {
  OwnKey key{fsdp2_key::kReshard,
             "`\"default\"` (None): units are freed after their forward, the root is kept; "
             "`\"true\"`: the root is freed, too; `\"false\"`: all are kept (ZeRO-2); an integer: "
             "all are cut to a slice among so many ranks, which divide the shard ranks",
             std::string("default")};
  key.choices = {"default", "true", "false"};
  key.meant = meant_reshard;
  return key;
}

OwnKey kept_key() {
  OwnKey key{
      fsdp2_key::kKept,
      "units that stay gathered though others are freed: named units by their modules as in "
      "`units` (`\"model.norm + lm_head\"`), those of `\"blocks\"` by `\"model.layers.*\"`, "
      "those of `\"ends\"` also `\"embedding\"` and `\"head\"`; `\"root\"` is the model's own. "
      "torchtitan keeps norm and head",
      std::string()};
  key.meant = [](const std::string& text) { return text; };
  return key;
}

OwnKey torch_key() {
  const std::vector<std::string> versions = torch_versions();
  OwnKey key{fsdp2_key::kTorch,
             fmt::format("PyTorch's version: {}. Keys that it lacks are refused; before 2.8 the "
                         "root is always kept and one shard rank gathers, too, before 2.15 "
                         "`reduce_dtype` is `param_dtype` unless it is stated",
                         fmt::join(mapped(versions,
                                          [](const std::string& version) {
                                            return fmt::format("`\"{}\"`", version);
                                          }),
                                   ", ")),
             versions.back()};
  key.choices = versions;
  key.meant = meant_torch;
  return key;
}

/// The type that a key names; None: the parameters' own.
std::optional<Dtype> dtype_of(const OwnValues& own, const char* key) {
  const std::string& name = own.text(key);
  return name == "own" ? std::nullopt : std::optional(parse_dtype(name));
}

/// Before PyTorch 2.15 gradients had the gathered type, and were reduced in it.
std::optional<Dtype> reduce_dtype(const OwnValues& own) {
  constexpr int kOwnGradients = 15;
  const std::optional<Dtype> stated = dtype_of(own, fsdp2_key::kReduceDtype);
  return stated || torch_minor(own) >= kOwnGradients ? stated
                                                     : dtype_of(own, fsdp2_key::kParamDtype);
}

std::vector<ShardSwitches> switches_of(const ParallelJob& job) {
  std::vector<ShardSwitches> switches(at(job.ddp.accumulation_steps));
  const std::string& mode = job.own.text(fsdp2_key::kAccumulation);
  for (std::size_t i = 0; i + 1 < switches.size(); ++i) {
    switches[i].gradient_sync = mode != "no_sync" && mode != "keep_no_sync";
    switches[i].all_reduce = mode != "no_all_reduce";
    switches[i].reshard_after_backward = mode != "keep" && mode != "keep_no_sync";
  }
  return switches;
}

/// Explicit lists of the units that come next and before, of those that have parameters; the root
/// has none and is in none.
void add_prefetches(const OwnValues& own, std::vector<ShardUnit>& units) {
  std::vector<int> order;
  for (std::size_t unit = 1; unit < units.size(); ++unit) {
    if (!units[unit].tensors.empty()) {
      order.push_back(static_cast<int>(unit));
    }
  }
  const auto count = static_cast<std::int64_t>(order.size());
  const auto list = [&](std::int64_t from, std::int64_t step, std::int64_t most) {
    std::vector<int> others;
    for (std::int64_t i = 1; i <= most && from + i * step >= 0 && from + i * step < count; ++i) {
      others.push_back(order[at(from + i * step)]);
    }
    return others;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    ShardUnit& unit = units[at(order[at(i)])];
    unit.forward_prefetch = list(i, 1, own.integer(fsdp2_key::kForwardPrefetch));
    unit.backward_prefetch = list(i, -1, own.integer(fsdp2_key::kBackwardPrefetch));
  }
}

}  // namespace

std::vector<OwnKey> fsdp2_keys() {
  OwnKey replicas{fsdp2_key::kReplicas,
                  "HSDP: replicas; each is sharded over ranks / replicas; `\"nodes\"`: one on each "
                  "node",
                  std::int64_t{1}};
  replicas.least = 1;
  replicas.choices = {"nodes"};
  replicas.default_is_common = true;  // DDP's ranks are no replicas of shards.
  OwnKey param{fsdp2_key::kParamDtype,
               "what parameters are cast to before they are gathered: `\"own\"`: nothing; "
               "`\"f32\"`, `\"bf16\"`, `\"f16\"`",
               std::string("own")};
  OwnKey reduce{fsdp2_key::kReduceDtype,
                "the type of the reduction: `\"own\"`: that of the parameters; `\"f32\"`, "
                "`\"bf16\"`, `\"f16\"`",
                std::string("own")};
  param.choices = reduce.choices = dtype_choices();
  param.meant = reduce.meant = meant_dtype;
  const OwnKey forward{fsdp2_key::kForwardPrefetch,
                       "each unit gathers so many of the next ones as soon as it has its own "
                       "(`set_modules_to_forward_prefetch`); 0: none",
                       std::int64_t{0}};
  OwnKey backward{fsdp2_key::kBackwardPrefetch,
                  "each unit gathers so many of those before it (`set_modules_to_backward_prefetch`"
                  "); 0: the one before, as PyTorch does by itself",
                  std::int64_t{0}};
  backward.meant = meant_backward_prefetch;
  OwnKey buffers{fsdp2_key::kReduceBuffers,
                 "reduce-scatter inputs held at a time (`set_reduce_scatter_max_input_buffers`)",
                 std::int64_t{1}};
  buffers.least = 1;
  const OwnKey group{fsdp2_key::kSeparateGroup,
                     "reductions have a communicator beside that of the gathers "
                     "(`set_separate_reduce_scatter_group`)",
                     false};
  const OwnKey async{
      fsdp2_key::kAsyncUnshard,
      "on a CPU: gathers run beside compute (`_set_unshard_async_op`); those of a GPU do anyway",
      false};
  OwnKey accumulation{
      fsdp2_key::kAccumulation,
      "what micro-batches before the last one do: `\"reduce\"`; `\"no_sync\"`: keep gradients on "
      "their rank; `\"no_all_reduce\"`: HSDP, reduce-scatter only; `\"keep\"`: keep parameters, "
      "too, "
      "after the backward; `\"keep_no_sync\"`: both",
      std::string("reduce")};
  const OwnKey offload{
      fsdp2_key::kOffload,
      "shards, their gradients and the optimizer are on the host (`CPUOffloadPolicy`, pinned); see "
      "[below](#offload-to-the-host)",
      false};
  accumulation.choices = {"reduce", "no_sync", "no_all_reduce", "keep", "keep_no_sync"};
  return {units_key(),
          reshard_key(),
          kept_key(),
          replicas,
          param,
          reduce,
          forward,
          backward,
          buffers,
          group,
          async,
          accumulation,
          offload,
          torch_key()};
}

int torch_minor(const OwnValues& own) {
  return std::stoi(own.text(fsdp2_key::kTorch).substr(std::string_view("2.").size()));
}

std::int64_t shards_of(const ParallelJob& job) {
  return job.ranks / job.own.integer(fsdp2_key::kReplicas);
}

UnitChoice rule_of(const OwnValues& own) {
  const std::string& text = own.text(fsdp2_key::kUnits);
  return text == "model"    ? UnitChoice{UnitRule::Model}
         : text == "ends"   ? UnitChoice{UnitRule::Ends}
         : text == "blocks" ? UnitChoice{UnitRule::Blocks}
                            : UnitChoice{UnitRule::Named, text};
}

Reshard reshard_of(const ParallelJob& job) {
  constexpr int kFreesRoot = 8;
  const std::string& text = job.own.text(fsdp2_key::kReshard);
  const bool frees_root = torch_minor(job.own) >= kFreesRoot;
  if (text == "default" || text == "false") {
    return {false, text == "default", 0};
  }
  const std::int64_t slice = text == "true" ? shards_of(job) : std::stoi(text);
  if (slice == shards_of(job)) {
    return {frees_root, true, 0};
  }
  return slice == 1 ? Reshard{false, false, 0} : Reshard{frees_root, true, static_cast<int>(slice)};
}

std::vector<bool> kept_units(const std::string& text, const std::vector<std::string>& unit_names) {
  std::vector<bool> kept(unit_names.size(), false);
  if (text.empty()) {
    return kept;
  }
  const auto modules_of =
      mapped(unit_names, [](const std::string& name) { return parts_of_list(name, '+'); });
  for (const std::string& entry : parts_of_list(text, ';')) {
    bool found = false;
    for (std::size_t unit = 0; unit < unit_names.size(); ++unit) {
      const std::vector<std::string>& modules = modules_of[unit];
      const bool meant =
          std::ranges::all_of(parts_of_list(entry, '+'), [&](const std::string& pattern) {
            return std::ranges::any_of(modules, [&](const std::string& module) {
              return matches_module(pattern, module);
            });
          });
      kept[unit] = kept[unit] || meant;
      found = found || meant;
    }
    if (!found) {
      throw InputError(unknown_name("unit", entry, without_numbers(unit_names)));
    }
  }
  return kept;
}

std::vector<ShardUnit> units_of(const ParallelJob& job, const TrainedModel& model) {
  std::vector<ShardUnit> units = shard_units(model);
  const Reshard reshard = reshard_of(job);
  const std::vector<bool> kept = kept_units(job.own.text(fsdp2_key::kKept), model.unit_names);
  for (std::size_t i = 0; i < units.size(); ++i) {
    ShardUnit& unit = units[i];
    unit.reshard_after_forward = (i > 0 ? reshard.units : reshard.root) && !kept[i];
    unit.slice_ranks = unit.reshard_after_forward ? reshard.slice_ranks : 0;
    unit.reduce_dtype = reduce_dtype(job.own);
    for (ShardedTensor& tensor : unit.tensors) {
      tensor.gathered = dtype_of(job.own, fsdp2_key::kParamDtype).value_or(tensor.stored);
    }
  }
  add_prefetches(job.own, units);
  return units;
}

Fsdp2Options options_of(const ParallelJob& job) {
  constexpr int kSkipsSingle = 8;
  Fsdp2Options options;
  const auto replicas = static_cast<int>(job.own.integer(fsdp2_key::kReplicas));
  const bool single_gathers = torch_minor(job.own) < kSkipsSingle;
  options.mesh = {job.ranks / replicas, replicas, replicas > 1, single_gathers};
  options.reduce_buffers = static_cast<int>(job.own.integer(fsdp2_key::kReduceBuffers));
  options.separate_reduce_group = job.own.flag(fsdp2_key::kSeparateGroup);
  options.async_unshard = job.own.flag(fsdp2_key::kAsyncUnshard);
  options.switches = switches_of(job);
  options.offload = job.own.flag(fsdp2_key::kOffload);
  return options;
}

}  // namespace stepsim
