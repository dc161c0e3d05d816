#include "sim/report/diff/diff_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/mapped.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/terminal/table.h"
#include "costmodel/terminal/wrap.h"
#include "sim/report/diff/diff_parts.h"
#include "sim/report/number_text.h"

namespace stepsim {
namespace {

constexpr int kWidth = 80;

std::string moved_ms(double ms) {
  const double size = std::abs(ms);
  return fmt::format("{:+.{}f} ms", ms, size < 0.1 ? 3 : size < 10 ? 2 : 1);
}

/// "+1.2 to +3.4 %"
std::string share_interval(const Effect& effect, double alarm) {
  const auto [low, high] = effect.interval(alarm);
  return fmt::format(
      "{:+.1f} to {:+.1f} %", 100 * shown_bound(effect, low), 100 * shown_bound(effect, high));
}

bool is_unequally_held_up(const RecordDiff& diff) {
  return diff.held_up_chance < kVerdictAlarm;
}

std::string ranks_text(const std::vector<int>& ranks, int world_size) {
  if (ranks.empty()) {
    return world_size > 1 ? fmt::format("on all {} ranks", world_size) : "";
  }
  constexpr std::size_t kShown = 8;
  const std::vector<int> shown(ranks.begin(),
                               ranks.begin() + static_cast<long>(std::min(kShown, ranks.size())));
  return fmt::format(
      "of rank{} {}{}",
      ranks.size() > 1 ? "s" : "",
      fmt::join(shown, ", "),
      ranks.size() > kShown ? fmt::format(" and {} more", ranks.size() - kShown) : "");
}

/// "the forward of rank 1 takes 9.8 % longer (+3.20 ms, +2.90 to +3.50)"
std::string moved_text(const RecordDiff& diff, const DiffCause& cause) {
  const auto& [low, high] = cause.interval;
  const std::string where = ranks_text(cause.ranks, diff.ranks);
  return fmt::format("{}{}{} takes {}{}{} ({} a step, {} to {})",
                     row_of(cause.part).words,
                     where.empty() ? "" : " ",
                     where,
                     cause.share == 0 ? "" : percent(std::abs(cause.share)) + " ",
                     cause.ms > 0 ? (cause.by_processor ? "more" : "longer") : "less",
                     cause.by_processor ? " of the processor" : "",
                     moved_ms(cause.ms),
                     moved_ms(low),
                     moved_ms(high));
}

/// At which sizes; empty where it cannot be said.
std::string sizes_text(const RecordDiff& diff) {
  if (diff.sizes.empty() || diff.verdict == DiffVerdict::NoDifference) {
    return "";
  }
  const SizeChange& small = diff.sizes.front();
  const SizeChange& large = diff.sizes.back();
  const std::string both =
      fmt::format("{} ({}) where the fullest rank has up to {:.0f} tokens, {} ({}) from {:.0f} on",
                  moved_ms(small.effect.change),
                  signed_percent(small.effect.relative(small.effect.change)),
                  small.to,
                  moved_ms(large.effect.change),
                  signed_percent(large.effect.relative(large.effect.change)),
                  large.from);
  if (diff.sizes_differ) {
    const bool grows = std::abs(large.effect.change) > std::abs(small.effect.change);
    return fmt::format("{} batches most: {}", grows ? "long" : "short", both);
  }
  if (diff.shares_differ) {
    return "about as many milliseconds at all lengths, as a fixed cost of a step: " + both;
  }
  return "at all lengths, as far as these steps tell: " + both;
}

/// The part whose mean over the ranks changed most, for a step that changed without one that did
/// so surely.
std::string largest_text(const RecordDiff& diff) {
  const PartChange* most = nullptr;
  for (const PartChange& change : diff.parts) {
    const bool counts = change.rank < 0 && row_of(change.part).adds &&
                        (change.effect.change > 0) == (diff.step.change > 0);
    if (counts &&
        (most == nullptr || std::abs(change.effect.change) > std::abs(most->effect.change))) {
      most = &change;
    }
  }
  const std::string none = "no single part stands out of the noise";
  return most == nullptr ? none
                         : fmt::format("{}; {} changed most: {} in the mean over the ranks",
                                       none,
                                       row_of(most->part).words,
                                       moved_ms(most->effect.change));
}

/// Whether the fullest ranks have other numbers of tokens in the mean.
bool have_other_tokens(const BatchesChange& batches) {
  constexpr double kWorthSaying = 0.001;
  return std::abs(batches.tokens_after - batches.tokens_before) >
         kWorthSaying * batches.tokens_before;
}

/// Where both sides have the same batches, as many of each, means of steps differ by their noise.
bool have_other_batches(const RecordDiff& diff) {
  constexpr double kWorthSaying = 0.005;
  return (!diff.same_batches || have_other_tokens(diff.batches)) &&
         std::abs(diff.batches.ms) > kWorthSaying * diff.mean_before;
}

std::string batches_text(const RecordDiff& diff) {
  const BatchesChange& batches = diff.batches;
  if (!have_other_tokens(batches)) {
    return fmt::format(
        "the batches have other lengths and numbers of samples, though the fullest rank has {:.0f} "
        "padded tokens a step in both, and the mean step takes {} for that or by its noise",
        batches.tokens_before,
        moved_ms(batches.ms));
  }
  return fmt::format(
      "the batches changed, which is no change of the machine: the fullest rank has {:.0f} -> "
      "{:.0f} padded tokens a step in the mean, and the mean step takes {} for that",
      batches.tokens_before,
      batches.tokens_after,
      moved_ms(batches.ms));
}

/// "+263.6 %", "+397 %": of hundreds, percent are digits enough.
std::string gain_text(double gain) {
  constexpr double kWhole = 1;
  return std::abs(gain) < kWhole ? fmt::format("{:+.1f} %", 100 * gain)
                                 : fmt::format("{:+.0f} %", 100 * gain);
}

/// "1211 -> 4403 useful tokens/s"
std::string speeds_text(const SpeedChange& speed) {
  return fmt::format("{:.0f} -> {:.0f} useful tokens/s", speed.before, speed.after);
}

/// "+263.6 %, 99.9 % interval +190.1 to +337.2 %"
std::string gain_text(const SpeedChange& speed, double alarm) {
  const auto [low, high] = speed.interval(alarm);
  const std::string to = gain_text(high);
  const std::string from = gain_text(low);
  return fmt::format("{}, {:g} % interval {} to {}",
                     gain_text(speed.gain()),
                     100 * (1 - alarm),
                     from.substr(0, from.size() - 2),  // One "%" for both.
                     to);
}

std::string speed_text(const SpeedChange& speed) {
  return fmt::format("{} ({})", speeds_text(speed), gain_text(speed, kVerdictAlarm));
}

/// Where no step of one side has its like on the other.
std::string speed_headline(const RecordDiff& diff) {
  constexpr double kLikelyAlarm = 0.1;
  const SpeedChange& speed = *diff.speed;
  if (diff.verdict != DiffVerdict::NoDifference || !speed.is_real(kLikelyAlarm)) {
    return fmt::format("{}: {}, with other batches",
                       diff.verdict == DiffVerdict::NoDifference ? "no difference beyond noise"
                                                                 : name_of(diff.verdict),
                       speed_text(speed));
  }
  return fmt::format(
      "likely {0}: {1} ({2}), with other batches; not surely {0}, since the 99.9 % interval holds "
      "no change, too",
      speed.gain() > 0 ? "faster" : "slower",
      speeds_text(speed),
      gain_text(speed, kLikelyAlarm));
}

/// What becomes of the step itself there.
std::string other_batches_text(const RecordDiff& diff) {
  return fmt::format(
      "the sides have too few steps of equal size to tell batches from the machine: the fullest "
      "rank has {:.0f} padded tokens a step in the mean before and {:.0f} after, and a step takes "
      "{} -> {} ms",
      diff.batches.tokens_before,
      diff.batches.tokens_after,
      step_ms_text(diff.mean_before),
      step_ms_text(diff.mean_after));
}

std::string held_up_text(const RecordDiff& diff) {
  const HeldUpSteps& before = diff.held_up_before;
  const HeldUpSteps& after = diff.held_up_after;
  return fmt::format(
      "steps that something held up (a checkpoint, an evaluation, a garbage collection or the "
      "like) are left out of all figures: {} of {} before, {} of {} after; they would add {} and "
      "{} to the mean step",
      before.held_up,
      before.steps,
      after.held_up,
      after.steps,
      moved_ms(held_up_ms(before)),
      moved_ms(held_up_ms(after)));
}

/// What to do about the largest reason.
std::string cause_next(const RecordDiff& diff, const DiffCause& cause, const DiffFiles& files) {
  const std::string after = fmt::format("{}", fmt::join(mapped(files.after, shell_word), " "));
  const std::string ranks =
      cause.ranks.size() == 1 ? fmt::format("rank{}", cause.ranks.front()) : "rank*";
  switch (cause.part) {
    case StepPart::Data:
      return fmt::format(
          "stepsim advise {}   (what loading costs; see workers and prefetch_factor of the "
          "DataLoader)",
          after);
    case StepPart::WaitingForRanks:
      return fmt::format("stepsim advise {}   (batches that are more equal)", after);
    case StepPart::Communication:
      return fmt::format(
          "torchrun --nproc_per_node {} -m stepsim.torch.all_reduce --out all_reduce.log   (the "
          "links by themselves, to hold against a log of before)",
          diff.ranks);
    case StepPart::Waiting:
      if (diff.reading == WaitReading::Processor) {
        return "record both again with Recorder(…, model=ddp), which tells ranks that are late "
               "from the network, and ask again";
      }
      return fmt::format("stepsim advise {}   (what the waiting is for)", after);
    case StepPart::Forward:
    case StepPart::Backward:
    case StepPart::Optimizer:
    case StepPart::Other:
    case StepPart::Host:
      break;
  }
  if (cause.processor_idle) {
    return fmt::format(
        "look at what else runs on the machine of {}, and for sleeps and locks in "
        "its {}; then record again",
        ranks == "rank*" ? "the ranks" : "rank " + ranks.substr(4),
        row_of(cause.part).words);
  }
  return fmt::format(
      "stepcal import kineto {}.pt.trace.json.gz   (PyTorch's profiler on some steps of both: "
      "which kernels of the {}{})",
      ranks == "rank*" ? ranks : ranks + "*",
      row_of(cause.part).words,
      cause.ranks.size() == 1 ? "; and look at that rank's clocks and what else runs there" : "");
}

/// How to learn more where nothing was found.
std::string more_next(const RecordDiff& diff, const DiffFiles& files) {
  constexpr double kAim = 0.01;
  constexpr std::size_t kMostSteps = 100'000;
  const auto [low, high] = diff.step.interval(kVerdictAlarm);
  const double half = diff.step.relative(high - low) / 2;
  const std::string sides = fmt::format("stepsim diff --before {} … --after {} …",
                                        fmt::join(mapped(files.before, shell_word), " "),
                                        fmt::join(mapped(files.after, shell_word), " "));
  if (half <= kAim) {
    return fmt::format("nothing; a change of less than {} would not have been seen", percent(half));
  }
  const auto steps =
      static_cast<std::size_t>(static_cast<double>(std::min(diff.steps_before, diff.steps_after)) *
                               (half / kAim) * (half / kAim));
  return fmt::format(
      "to see a change of 1 % rather than of {}: record {} steps of each, in several runs by turns "
      "(before, after, before, after), and say {}",
      percent(half),
      steps > kMostSteps ? "many more" : fmt::format("about {}", (steps + 9) / 10 * 10),
      sides);
}

std::string sizes_table(const RecordDiff& diff, const Screen& screen) {
  if (diff.sizes.empty()) {
    return "";
  }
  Table table({"tokens of the fullest rank", "steps", "before ms", "change", "99 % interval"});
  for (const SizeChange& size : diff.sizes) {
    table.add({fmt::format("{:.0f} to {:.0f}", size.from, size.to),
               fmt::format("{}", size.steps),
               step_ms_text(size.effect.before),
               signed_percent(size.effect.relative(size.effect.change)),
               share_interval(size.effect, kPartsAlarm)});
  }
  return "\n" + table.text(screen);
}

/// A paragraph behind a label, indented below it.
std::string paragraph(const std::string& label, const std::string& text, const Screen& screen) {
  std::string result;
  const auto width = static_cast<std::size_t>(screen.columns);
  const std::size_t room = width > 2 * label.size() ? width - label.size() : width;
  for (const std::string& line : wrapped(text, room)) {
    result += (result.empty() ? label : std::string(label.size(), ' ')) + line + "\n";
  }
  return result;
}

std::string compared_text(const RecordDiff& diff) {
  return fmt::format(
      "{} steps before and {} after, {}; {}",
      diff.steps_before,
      diff.steps_after,
      diff.same_batches ? "each against those of the same batches" : "at equal sizes by a fit",
      diff.by_turns ? "both ran by turns, so that the machine's drift cancels"
                    : "one side ran behind the other, so intervals hold the machine's drift");
}

}  // namespace

const char* name_of(DiffVerdict verdict) {
  return verdict == DiffVerdict::Faster   ? "faster"
         : verdict == DiffVerdict::Slower ? "slower"
                                          : "no difference";
}

std::string cause_text(const RecordDiff& diff, const DiffCause& cause) {
  std::string text = moved_text(diff, cause);
  if (!cause.waiting.empty()) {
    const bool several = cause.waiting.size() > 1;
    text += fmt::format("; so rank{} {} {} {}{}",
                        several ? "s" : "",
                        fmt::join(cause.waiting, ", "),
                        several ? "wait" : "waits",
                        several ? "up to " : "",
                        moved_ms(cause.waiting_ms));
  }
  if (cause.processor_idle) {
    text +=
        "; its processor time did not grow with it: it slept, waited, or another program had "
        "the processor";
  }
  if (row_of(cause.part).waits && cause.part == StepPart::Communication) {
    text += ": the network, or what else moves gradients, since no rank's own work changed";
  } else if (row_of(cause.part).waits && diff.reading == WaitReading::Processor) {
    text +=
        ": the network, or a rank that slept or was kept from running in its backward; these "
        "records do not tell which";
  } else if (row_of(cause.part).waits) {
    text += ", and no rank's own work stands out of the noise";
  }
  return text;
}

double held_up_ms(const HeldUpSteps& side) {
  return side.steps > 0 ? side.ms / side.steps : 0;
}

std::string diff_headline(const RecordDiff& diff) {
  if (diff.other_batches) {
    return speed_headline(diff);
  }
  const Effect& step = diff.step;
  const std::string with = fmt::format("99.9 % interval {}", share_interval(step, kVerdictAlarm));
  std::string text =
      diff.verdict == DiffVerdict::NoDifference
          ? fmt::format(
                "no difference beyond noise: a step takes {} for the same batches ({}), {} "
                "ms before",
                signed_percent(step.relative(step.change)),
                with,
                step_ms_text(step.before))
          : fmt::format("{}: a step takes {} {} for the same batches ({}), {} -> {} ms",
                        name_of(diff.verdict),
                        percent(std::abs(step.relative(step.change))),
                        step.change > 0 ? "longer" : "less",
                        with,
                        step_ms_text(step.before),
                        step_ms_text(step.before + step.change));
  if (is_unequally_held_up(diff)) {
    text += fmt::format("; beside that, {} of {} steps are held up, {} of {} before ({} a step)",
                        diff.held_up_after.held_up,
                        diff.held_up_after.steps,
                        diff.held_up_before.held_up,
                        diff.held_up_before.steps,
                        moved_ms(held_up_ms(diff.held_up_after) - held_up_ms(diff.held_up_before)));
  }
  return text;
}

std::vector<std::string> diff_reasons(const RecordDiff& diff) {
  if (diff.other_batches) {
    return {other_batches_text(diff)};
  }
  std::vector<std::string> reasons;
  for (const DiffCause& cause : diff.causes) {
    reasons.push_back(cause_text(diff, cause));
  }
  if (diff.causes.empty() && diff.verdict != DiffVerdict::NoDifference) {
    reasons.push_back(largest_text(diff));
  }
  if (std::string sizes = sizes_text(diff); !sizes.empty()) {
    reasons.push_back(std::move(sizes));
  }
  if (have_other_batches(diff)) {
    reasons.push_back(batches_text(diff) +
                      (diff.speed ? "; all in all " + speed_text(*diff.speed) : ""));
  }
  return reasons;
}

std::vector<std::string> diff_next(const RecordDiff& diff, const DiffFiles& files) {
  if (diff.other_batches && diff.verdict == DiffVerdict::NoDifference) {
    return {
        fmt::format("to be sure: {} runs of each by turns, and stepsim diff --before {} … "
                    "--after {} …",
                    files.before.size() > 1 && files.after.size() > 1 ? "more" : "several",
                    fmt::join(mapped(files.before, shell_word), " "),
                    fmt::join(mapped(files.after, shell_word), " "))};
  }
  if (!diff.causes.empty()) {
    return {cause_next(diff, diff.causes.front(), files)};
  }
  if (diff.verdict == DiffVerdict::NoDifference && !diff.other_batches) {
    return {more_next(diff, files)};
  }
  return {fmt::format("stepsim advise {}   (what its steps are spent on)",
                      fmt::join(mapped(files.after, shell_word), " "))};
}

std::string diff_text(const RecordDiff& diff, const DiffFiles& files, const Screen& screen) {
  Screen shown = screen;
  shown.columns = screen.is_terminal() ? screen.columns : kWidth;
  std::string text = paragraph("verdict:  ", diff_headline(diff), shown);
  const char* label = diff.verdict == DiffVerdict::NoDifference ? "yet:      " : "why:      ";
  for (const std::string& reason : diff_reasons(diff)) {
    text += paragraph(label, reason, shown);
    label = "          ";
  }
  if (!diff.settings.empty()) {
    text += paragraph("changed:  ", fmt::format("{}", fmt::join(diff.settings, "; ")), shown);
  }
  for (const std::string& next : diff_next(diff, files)) {
    text += paragraph("next:     ", next, shown);
  }
  if (!diff.other_batches) {
    text += "\n" + diff_parts_text(diff, shown);
    text += sizes_table(diff, shown);
    text += "\n" + paragraph("compared: ", compared_text(diff), shown);
  }
  std::vector<std::string> notes = diff.notes;
  if (diff.held_up_before.held_up + diff.held_up_after.held_up > 0) {
    notes.push_back(held_up_text(diff));
  }
  for (const std::string& note : notes) {
    text += paragraph("note: ", note, shown);
  }
  return text;
}

}  // namespace stepsim
