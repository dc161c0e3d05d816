#include "sim/report/sweep/sweep_warnings.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/note.h"
#include "sim/report/notes.h"
#include "sim/report/sweep/sweep_columns.h"
#include "sim/study/swept_effect.h"

namespace stepsim {

namespace {

/// Notes that several points share: of sizes in words of the one that is worst.
struct SharedNote {
  std::string topic;
  std::string text;
  std::optional<SizesBeyondMeasured> sizes;  ///< In place of the text: those of the worst point.
  std::vector<OutOfMemory> needs;            ///< Of points that do not fit.
  std::optional<CollectiveNotMeasured> collective;
  std::vector<std::size_t> places;
};

SharedNote& add_shared(std::vector<SharedNote>& shared,
                       const std::string& topic,
                       const std::string& text,
                       std::size_t place) {
  auto found = std::ranges::find(shared, topic, &SharedNote::topic);
  if (found == shared.end()) {
    shared.push_back({topic, text, std::nullopt, {}, std::nullopt, {}});
    found = shared.end() - 1;
  }
  found->places.push_back(place);
  return *found;
}

void add_note(std::vector<SharedNote>& shared, const Note& note, std::size_t place) {
  const auto* beyond = std::get_if<SizesBeyondMeasured>(&note);
  const std::string topic = beyond != nullptr ? beyond->op + (beyond->smaller ? " below" : " above")
                            : std::holds_alternative<OutOfMemory>(note) ? "out of memory"
                                                                        : note_text(note);
  SharedNote& found = add_shared(shared, topic, note_text(note), place);
  if (beyond != nullptr && (!found.sizes || beyond->factor > found.sizes->factor)) {
    found.sizes = *beyond;
  }
  if (const auto* memory = std::get_if<OutOfMemory>(&note)) {
    found.needs.push_back(*memory);
  }
  if (const auto* collective = std::get_if<CollectiveNotMeasured>(&note)) {
    found.collective = *collective;
  }
}

/// What several points that do not fit need; what would fit, each says by itself.
std::string needs_text(const std::vector<OutOfMemory>& needs) {
  const auto [least, most] = std::ranges::minmax(needs, {}, &OutOfMemory::needed);
  return fmt::format(
      "do not fit: they need {:.1f} to {:.1f} GiB of {:.1f} GiB; stepsim run with "
      "one of them says what would",
      static_cast<double>(least.needed.value()) / 0x1p30,
      static_cast<double>(most.needed.value()) / 0x1p30,
      static_cast<double>(most.capacity.value()) / 0x1p30);
}

/// One note for the ops that are as far beyond at the same points.
std::vector<SharedNote> joined(const std::vector<SharedNote>& notes) {
  std::vector<SharedNote> result;
  for (const SharedNote& note : notes) {
    const auto same = std::ranges::find_if(result, [&](const SharedNote& other) {
      return note.sizes && other.sizes && other.sizes->factor == note.sizes->factor &&
             other.sizes->smaller == note.sizes->smaller && other.places == note.places;
    });
    if (same == result.end()) {
      result.push_back(note);
    } else {
      same->sizes->op += ", " + note.sizes->op;
    }
  }
  for (SharedNote& note : result) {
    note.text = note.sizes              ? note_text(*note.sizes)
                : note.needs.size() > 1 ? needs_text(note.needs)
                                        : note.text;
  }
  return result;
}

/// "ddp.bucket_cap = 1 MiB, 4 MiB: "
std::string points_text(const std::vector<SweepAxis>& axes,
                        const SweepReport& report,
                        const std::vector<std::size_t>& places) {
  return fmt::format("{}{}: ",
                     axes.size() == 1 ? axes.front().key + " = " : "",
                     places_text(axes, report, places));
}

/// Takes the notes of collectives without a measured table out of others, and makes one of them
/// that says which points they are of.
std::optional<SharedNote> joined_collectives(const std::vector<SweepAxis>& axes,
                                             const SweepReport& report,
                                             std::vector<SharedNote>& notes) {
  const auto others = std::stable_partition(notes.begin(), notes.end(), [](const SharedNote& note) {
    return !note.collective.has_value();
  });
  const std::vector<SharedNote> taken(others, notes.end());
  notes.erase(others, notes.end());
  if (taken.empty()) {
    return std::nullopt;
  }
  std::vector<std::vector<std::size_t>> groups;
  for (const SharedNote& note : taken) {
    if (std::ranges::find(groups, note.places) == groups.end()) {
      groups.push_back(note.places);
    }
  }
  SharedNote result = taken.front();
  std::vector<CollectiveNotMeasured> all;
  std::vector<std::string> texts;
  for (const std::vector<std::size_t>& places : groups) {
    std::vector<CollectiveNotMeasured> alike;
    for (const SharedNote& note : taken) {
      if (note.places == places) {
        alike.push_back(*note.collective);
      }
    }
    all.insert(all.end(), alike.begin(), alike.end());
    const std::string text = collectives_text(alike);
    texts.push_back(groups.size() == 1 || places.size() == report.rows.size()
                        ? text
                        : points_text(axes, report, places) + text);
  }
  if (groups.size() > 1) {
    result.places.resize(report.rows.size());  // The text says of which points it is.
  }
  result.text = fmt::format("not measured: {}; {}", fmt::join(texts, "; "), measured_by(all));
  return result;
}

}  // namespace

std::string places_text(const std::vector<SweepAxis>& axes,
                        const SweepReport& report,
                        const std::vector<std::size_t>& places) {
  if (axes.size() != 1) {
    return fmt::format("{} of {} points", places.size(), report.rows.size());
  }
  const auto label = [&](std::size_t i) {
    return labels_of(axes, report.rows[places[i]].point).front();
  };
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < places.size();) {
    std::size_t last = i;
    while (last + 1 < places.size() && places[last + 1] == places[last] + 1) {
      ++last;
    }
    if (last - i >= 2) {
      runs.push_back(label(i) + " to " + label(last));
    } else {
      runs.push_back(label(i));
      last = i;
    }
    i = last + 1;
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

std::vector<std::string> sweep_warnings(const std::vector<SweepAxis>& axes,
                                        const SweepReport& report) {
  std::vector<SharedNote> shared;
  std::vector<Note> of_times;  // They speak of all points together.
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    if (report.rows[i].is_blank()) {
      const std::string text = "refused: " + report.rows[i].point.not_priced;
      add_shared(shared, text, text, i);
    }
    for (const Note& note : report.rows[i].point.prediction.notes) {
      if (std::holds_alternative<TimesOfAnyBatch>(note)) {
        of_times.push_back(note);
      } else {
        add_note(shared, note, i);
      }
    }
  }
  std::vector<std::string> warnings =
      mapped(report.keys_without_effect, [&](const std::string& key) {
        const std::string why = reason_without_effect(key, report.rows[report.best].point);
        return printable(key) + " makes no difference here: " +
               (why.empty() ? "all its values come to the same" : why);
      });
  std::ranges::move(note_texts(noted(of_times)), std::back_inserter(warnings));
  std::vector<SharedNote> notes = joined(shared);
  if (const auto collectives = joined_collectives(axes, report, notes)) {
    notes.push_back(*collectives);
  }
  for (const SharedNote& note : notes) {
    warnings.push_back(note.places.size() == report.rows.size()
                           ? note.text
                           : points_text(axes, report, note.places) + note.text);
  }
  return warnings;
}

}  // namespace stepsim
