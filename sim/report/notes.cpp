#include "sim/report/notes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/network/collective_cost.h"
#include "sim/predict/step_cost.h"
#include "sim/report/number_text.h"

namespace stepsim {

namespace {

/// What would fit; empty where that is not known.
std::string budget_text(const std::optional<TokenBudget>& budget) {
  if (!budget) {
    return "";
  }
  return budget->tokens > 0
             ? fmt::format("; at length {} a micro-batch of up to {} padded tokens fits",
                           budget->length,
                           budget->tokens)
             : fmt::format("; not even one sample of length {} fits", budget->length);
}

/// What measures other sizes of these ops, with commas between.
std::string way_to_measure(const std::string& ops) {
  const auto names = collective_kind_names();
  if (std::ranges::any_of(names, [&](const auto& name) { return ops.starts_with(name); })) {
    return "all_reduce.py and nccl-tests measure such sizes, and --base takes what they measured";
  }
  return ops.find(" pass") != std::string::npos
             ? "record or time batches that have them"
             : "stepsim.torch.measure on these plans' shapes measures such sizes";
}

/// One overload for each kind of note.
struct Words {
  std::string operator()(const SizesBeyondMeasured& note) const {
    constexpr double kNotable = 1.05;
    const std::string how_far = note.factor < kNotable ? note.smaller ? "just below" : "just beyond"
                                : note.smaller ? fmt::format("down to 1/{:.2g} of", note.factor)
                                               : fmt::format("up to {:.2g} times", note.factor);
    constexpr int kFew = 3;
    const auto ops = 1 + std::ranges::count(note.op, ',');
    return fmt::format("{}: {} the {} size that was measured{}; {}",
                       ops > kFew ? fmt::format("{} kinds of op", ops) : note.op,
                       how_far,
                       note.smaller ? "smallest" : "largest",
                       ops > kFew ? fmt::format(" ({})", note.op) : "",
                       way_to_measure(note.op));
  }
  std::string operator()(const SizesNotMeasured& note) const {
    return fmt::format(
        "extrapolated, since the profile measured none of these sizes: {}; "
        "stepsim.torch.measure on these plans' shapes measures them",
        fmt::join(note.op_classes, ", "));
  }
  std::string operator()(const EmptyBlocksFree& /*note*/) const {
    return "the empty blocks of varlen attention's grid cost nothing here: neither the profile nor "
           "varlen.empty_block says what one takes";
  }
  std::string operator()(const EmptyBlockKeyUnused& /*note*/) const {
    return "varlen.empty_block is not used: the profile prices empty blocks itself";
  }
  std::string operator()(const ProfileInterference& note) const {
    const std::string none = percent(0);
    if (percent(note.value.compute) == none && percent(note.value.transfer) == none &&
        note.value.memory_share == 0 && note.value.multiprocessors == 0) {
      return fmt::format(
          "the profile's {} measurements show no slowing of compute and transfers by each other; "
          "[interference] in the scenario takes its place",
          note.measurements);
    }
    std::string text = fmt::format(
        "by {} measurements of the profile, compute takes {} longer and transfers {} longer while "
        "they overlap",
        note.measurements,
        percent(note.value.compute),
        percent(note.value.transfer));
    if (note.value.memory_share > 0) {
      text += fmt::format(", {} of the memory bandwidth", percent(note.value.memory_share));
    }
    if (note.value.multiprocessors > 0) {
      text += fmt::format(", waves over {} multiprocessors", note.value.multiprocessors);
    }
    return text + "; [interference] in the scenario takes its place";
  }
  std::string operator()(const CollectivesInsidePasses& /*note*/) const {
    return "the profile was fitted to whole steps: all-reduces are inside its passes, so bucket "
           "caps and networks make no difference here";
  }
  std::string operator()(const KeysOfBuckets& note) const {
    return fmt::format("parallel.kind = \"{}\" has no buckets: {} {} nothing to it",
                       note.kind,
                       fmt::join(note.keys, ", "),
                       note.keys.size() == 1 ? "means" : "mean");
  }
  std::string operator()(const OutOfMemory& note) const {
    return "out of memory: " + out_of_memory_text(note) + budget_text(note.budget);
  }
  std::string operator()(const StatedErrors& note) const {
    std::vector<std::string> parts;
    if (note.times) {
      parts.push_back(fmt::format("[times] by {:.3g} % (times.error)", *note.times * 100));
    }
    if (note.all_reduce) {
      parts.push_back(
          fmt::format("cluster.all_reduce by {:.3g} % (its error)", *note.all_reduce * 100));
    }
    if (note.interference) {
      parts.push_back(
          fmt::format("interference by {:.3g} (interference.error)", *note.interference));
    }
    return fmt::format("the interval takes what the scenario states to be off: {}",
                       fmt::join(parts, ", "));
  }
  std::string operator()(const HostBound& note) const {
    constexpr double kMicro = 1e6;
    return fmt::format(
        "the host decides this step, not the batch: launching {} kernels takes {:.3g} ms{} and "
        "their work {:.3g} ms; {}",
        note.kernels,
        static_cast<double>(note.kernels) * note.launch_seconds * 1e3,
        note.launch_assumed
            ? fmt::format(" at {:.0f} us each, which is assumed,", note.launch_seconds * kMicro)
            : "",
        note.compute_ms,
        note.launch_assumed ? "say what a launch takes (host.launch)"
                            : "larger batches cost little");
  }
  std::string operator()(const RecordedBesideOthers& note) const {
    return fmt::format(
        "other programs kept the machine busy while the steps were recorded, which took {:.2f} "
        "times their processor time: predictions are for as busy a machine, and intervals reach "
        "from an idle one to one with twice as much else to do",
        note.slowed);
  }
  std::string operator()(const BelowHostFloor& note) const {
    return fmt::format(
        "{} parameter tensors: a host usually needs {:.3g} to {:.3g} ms to launch such a step, and "
        "the costs of the smallest batch, below all that were timed, come to {:.3g} ms: it is "
        "priced at {:.3g} ms, and the interval holds faster and slower hosts; time a step of that "
        "batch, or say what a launch takes (host.launch)",
        note.tensors,
        note.host_low_ms,
        note.host_high_ms,
        note.costs_ms,
        note.priced_ms);
  }
  std::string operator()(const UnitHostAssumed& note) const {
    return fmt::format(
        "the host's own time for the units is assumed to be that of fully_shard in PyTorch 2.15 on "
        "an "
        "AMD "
        "EPYC: {:.3g} ms in a forward, {:.3g} ms in a backward and {:.3g} ms in the optimizer of a "
        "step, which a GPU hides as far as the host is ahead; python3 -m stepsim.torch.calibrate "
        "measures it, or say host.unit_forward, host.unit_backward and host.sharded_tensor",
        note.forward_ms,
        note.backward_ms,
        note.optimizer_ms);
  }
  std::string operator()(const AssumedOfKind& note) const { return note.text; }
  std::string operator()(const PricesNotMeasured& note) const {
    return "prices of compute: " + printable(note.origin, std::string::npos);
  }
  std::string operator()(const OtherSettings& note) const {
    return fmt::format("the profile was made with other settings: {}",
                       fmt::join(note.differences, "; "));
  }
  std::string operator()(const CostsNothing& note) const {
    std::string text =
        "counted as free, since neither the profile nor the scenario says its cost: ";
    if (note.launches) {
      text += "the host's kernel launches (host.launch)";
    }
    if (note.interference) {
      text += note.launches ? "; " : "";
      text += "what compute and transfers cost each other while they overlap ([interference])";
    }
    return text;
  }
  std::string operator()(const DefaultCapStated& /*note*/) const {
    return "ddp.bucket_cap = \"25 MiB\" limits the first bucket to 25 MiB, too, as "
           "DDP(bucket_cap_mb=25) does since PyTorch 2.11; for a DDP without bucket_cap_mb, whose "
           "first bucket has 1 MiB, leave ddp.bucket_cap out";
  }
  std::string operator()(const ActivationsNotCounted& note) const {
    if (note.lengths_unknown) {
      return "peak memory is without activations, since the profile's table of steps has no "
             "lengths: whether a batch fits is not checked; give the table a column 'length' and "
             "import it again";
    }
    return "peak memory is without activations, which this kind of model does not state: whether a "
           "batch fits is not checked";
  }
  std::string operator()(const OptimizerOfAdamw& note) const {
    return fmt::format(
        "the profile's optimizer is AdamW; SGD is taken to need {} of its {} parts, by the "
        "elements that each reads and writes",
        note.moved,
        kAdamwMoves);
  }
  std::string operator()(const TimesOfAnyBatch& note) const {
    return fmt::format(
        "[times] are taken for every batch, and batches hold {} to {} tokens here, so that larger "
        "ones seem to cost nothing: say in times.tokens how many tokens they are of",
        fmt::group_digits(note.fewest),
        fmt::group_digits(note.most));
  }
  std::string operator()(const HookNotStarted& note) const {
    const std::string all_reduces = fmt::format(
        "the communication hook {} is a plain all-reduce before step {} (start_iteration)",
        note.hook,
        note.start);
    return note.start >= note.steps
               ? fmt::format(
                     "{}, and {} steps are simulated: this shows nothing of it; give it a smaller "
                     "start_iteration",
                     all_reduces,
                     note.steps)
               : fmt::format(
                     "{}, and the means are of steps {} to {}, with it and without; take "
                     "warmup_steps = {}",
                     all_reduces,
                     note.warmup_steps,
                     note.steps - 1,
                     note.start);
  }
  std::string operator()(const CollectiveNotMeasured& note) const {
    return "not measured: " + note.origin.text + "; " + measured_by({&note, 1});
  }
};

/// "all_reduce: NCCL 2.28.9 tuning model: " and "Ring/LL128".
std::pair<std::string, std::string> model_and_way(const std::string& origin) {
  const std::size_t colon = origin.rfind(": ");
  const std::size_t way = colon == std::string::npos ? 0 : colon + 2;
  return {origin.substr(0, way), origin.substr(way)};
}

/// Keeps the note of an op that is farthest from what was measured, on either side.
void add_farthest(const SizesBeyondMeasured& note, std::vector<SizesBeyondMeasured>& notes) {
  const auto same = std::ranges::find_if(notes, [&](const SizesBeyondMeasured& other) {
    return other.op == note.op && other.smaller == note.smaller;
  });
  if (same == notes.end()) {
    notes.push_back(note);
  } else {
    same->factor = std::max(same->factor, note.factor);
  }
}

/// One note for the ops that are as far beyond.
std::vector<SizesBeyondMeasured> joined(const std::vector<SizesBeyondMeasured>& notes) {
  std::vector<SizesBeyondMeasured> result;
  for (const SizesBeyondMeasured& note : notes) {
    const auto same = std::ranges::find_if(result, [&](const SizesBeyondMeasured& other) {
      return other.factor == note.factor && other.smaller == note.smaller;
    });
    if (same == result.end()) {
      result.push_back(note);
    } else {
      same->op += ", " + note.op;
    }
  }
  return result;
}

}  // namespace

std::string measured_by(std::span<const CollectiveNotMeasured> notes) {
  if (std::ranges::all_of(notes, [](const CollectiveNotMeasured& note) {
        return note.origin.source == CollectiveSource::BeyondFittedLinks;
      })) {
    return "a step timed on more ranks or nodes narrows the interval (stepcal import step-times)";
  }
  const auto of_shards = std::ranges::count_if(notes, [](const CollectiveNotMeasured& note) {
    return note.origin.text.starts_with(name_of(CollectiveKind::AllGather)) ||
           note.origin.text.starts_with(name_of(CollectiveKind::ReduceScatter));
  });
  const char* verb = notes.size() > 1 ? "measure them" : "measures it";
  return of_shards == 0 ? fmt::format("stepcal measure or all_reduce.py {}", verb)
         : of_shards == std::ssize(notes)
             ? fmt::format("stepcal measure or nccl-tests (stepcal import nccl-tests) {}", verb)
             : fmt::format(
                   "stepcal measure, all_reduce.py or nccl-tests (stepcal import nccl-tests) {}",
                   verb);
}

std::string collectives_text(std::span<const CollectiveNotMeasured> notes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> models;
  for (const CollectiveNotMeasured& note : notes) {
    const auto [model, way] = model_and_way(note.origin.text);
    if (models.empty() || models.back().first != model) {
      models.push_back({model, {}});
    }
    models.back().second.push_back(way);
  }
  return fmt::format("{}",
                     fmt::join(mapped(models,
                                      [](const auto& model) {
                                        return fmt::format(
                                            "{}{}", model.first, fmt::join(model.second, " and "));
                                      }),
                               "; "));
}

std::string note_text(const Note& note) {
  return std::visit(Words{}, note);
}

std::string out_of_memory_text(const OutOfMemory& what) {
  return fmt::format("step {}{}, rank {}: needs {:.1f} GiB of {:.1f} GiB",
                     what.step,
                     what.behind_steps ? " of the epoch, after the simulated ones" : "",
                     what.rank,
                     static_cast<double>(what.needed.value()) / 0x1p30,
                     static_cast<double>(what.capacity.value()) / 0x1p30);
}

void widen(const Note& note, std::optional<TimesOfAnyBatch>& all) {
  if (const auto* one = std::get_if<TimesOfAnyBatch>(&note)) {
    all = all ? TimesOfAnyBatch{std::min(all->fewest, one->fewest), std::max(all->most, one->most)}
              : *one;
  }
}

std::string times_text(const std::optional<TimesOfAnyBatch>& all) {
  return all && all->fewest < all->most ? note_text(*all) : "";
}

/// What no table has: one sentence, and another for what a step of more ranks would tell.
std::vector<std::string> not_measured_texts(const std::vector<CollectiveNotMeasured>& notes) {
  std::vector<std::string> texts;
  for (const bool by_steps : {false, true}) {
    std::vector<CollectiveNotMeasured> alike;
    std::ranges::copy_if(notes, std::back_inserter(alike), [&](const CollectiveNotMeasured& note) {
      return (note.origin.source == CollectiveSource::BeyondFittedLinks) == by_steps;
    });
    if (!alike.empty()) {
      texts.push_back(
          fmt::format("not measured: {}; {}", collectives_text(alike), measured_by(alike)));
    }
  }
  return texts;
}

std::vector<std::string> note_texts(const Prediction& prediction) {
  std::vector<std::string> texts;
  std::vector<CollectiveNotMeasured> not_measured;
  std::optional<TimesOfAnyBatch> times;
  for (const Note& note : prediction.notes) {
    widen(note, times);
    if (const auto* collective = std::get_if<CollectiveNotMeasured>(&note)) {
      not_measured.push_back(*collective);
      continue;
    }
    const bool of_times = std::holds_alternative<TimesOfAnyBatch>(note);
    if (std::string text = of_times ? times_text(times) : note_text(note); !text.empty()) {
      texts.push_back(std::move(text));
    }
  }
  std::ranges::move(not_measured_texts(not_measured), std::back_inserter(texts));
  return texts;
}

std::vector<std::string> note_texts(std::span<const Prediction> predictions) {
  std::vector<std::string> seen;
  const auto add = [&seen](const std::string& line) {
    if (std::ranges::find(seen, line) == seen.end()) {
      seen.push_back(line);
    }
  };
  std::vector<SizesBeyondMeasured> beyond;
  std::optional<HostBound> bound;  // The policy with the shortest kernels,
  std::vector<std::string> bound_policies;
  std::optional<TimesOfAnyBatch> times;
  std::vector<CollectiveNotMeasured> not_measured;
  for (const Prediction& prediction : predictions) {
    for (const Note& note : prediction.notes) {
      if (std::holds_alternative<TimesOfAnyBatch>(note)) {
        widen(note, times);
      } else if (const auto* sizes = std::get_if<SizesBeyondMeasured>(&note)) {
        add_farthest(*sizes, beyond);
      } else if (const auto* host = std::get_if<HostBound>(&note)) {
        bound = bound && bound->compute_ms < host->compute_ms ? bound : *host;
        bound_policies.push_back(printable(prediction.policy));
      } else if (const auto* collective = std::get_if<CollectiveNotMeasured>(&note)) {
        const auto has_text = [&](const CollectiveNotMeasured& other) {
          return other.origin.text == collective->origin.text;
        };
        if (std::ranges::none_of(not_measured, has_text)) {
          not_measured.push_back(*collective);
        }
      } else {
        const bool of_policy = std::holds_alternative<OutOfMemory>(note);
        add((of_policy && !prediction.policy.empty() ? prediction.policy + ": " : "") +
            note_text(note));
      }
    }
  }
  if (const std::string text = times_text(times); !text.empty()) {
    add(text);
  }
  if (bound) {
    add(note_text(*bound) +
        (predictions.size() > 1 ? fmt::format(" ({})", fmt::join(bound_policies, ", ")) : ""));
  }
  for (const SizesBeyondMeasured& sizes : joined(beyond)) {
    add(note_text(sizes));
  }
  std::ranges::for_each(not_measured_texts(not_measured), add);
  return seen;
}

std::string warnings_text(std::span<const Prediction> predictions) {
  std::string text;
  for (const std::string& note : note_texts(predictions)) {
    text += "warning: " + note + "\n";
  }
  return text;
}

std::vector<Prediction> noted(const std::vector<Note>& notes) {
  std::vector<Prediction> predictions(1);
  for (const Note& note : notes) {
    if (!std::holds_alternative<ActivationsNotCounted>(note)) {
      predictions.front().notes.push_back(note);
    }
  }
  return predictions;
}

}  // namespace stepsim
