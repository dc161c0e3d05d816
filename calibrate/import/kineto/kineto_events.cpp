#include "calibrate/import/kineto/kineto_events.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/kineto/kineto_plain_rows.h"
#include "calibrate/import/kineto/kineto_source.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

constexpr std::size_t kMaxDepth = 100;
constexpr std::size_t kLongestArg = 4096;
constexpr std::size_t kLongestName = 512;

using ArgName = std::pair<std::string_view, KinetoArg>;

constexpr std::array<ArgName, static_cast<std::size_t>(KinetoArg::Count)> kArgNames = {{
    {"correlation", KinetoArg::Correlation},
    {"stream", KinetoArg::Stream},
    {"Collective name", KinetoArg::CollectiveName},
    {"In msg nelems", KinetoArg::InElements},
    {"Out msg nelems", KinetoArg::OutElements},
    {"dtype", KinetoArg::Dtype},
    {"Group size", KinetoArg::GroupSize},
    {"Process Group Name", KinetoArg::GroupName},
    {"Process Group Ranks", KinetoArg::GroupRanks},
    {"Input Dims", KinetoArg::InputDims},
    {"Input type", KinetoArg::InputType},
    {"Seq", KinetoArg::Sequence},
    {"Comms Id", KinetoArg::Communicator},
    {"wait_on_stream", KinetoArg::WaitOnStream},
    {"wait_on_cuda_event_record_corr_id", KinetoArg::WaitOnRecord},
}};

/// Microseconds with at most three decimals, as profilers write them, to nanoseconds; -1 for other
/// texts.
std::int64_t plain_nanoseconds(std::string_view microseconds) {
  constexpr std::size_t kMostDigits = 18;  // Of nanoseconds; they fit into 64 bits.
  constexpr std::size_t kDecimals = 3;
  std::int64_t value = 0;
  std::size_t digits = 0;
  std::size_t decimals = 0;
  bool in_decimals = false;
  for (const char c : microseconds) {
    if (c == '.' && !in_decimals) {
      in_decimals = true;
    } else if (c >= '0' && c <= '9' && digits < kMostDigits && decimals < kDecimals) {
      value = value * 10 + (c - '0');
      ++digits;
      decimals += in_decimals ? 1 : 0;
    } else {
      return -1;
    }
  }
  for (; decimals < kDecimals; ++decimals) {
    if (++digits > kMostDigits) {
      return -1;
    }
    value *= 10;
  }
  return value;
}

/// Microseconds as written to nanoseconds; a double has too few digits for Unix time.
std::optional<std::int64_t> nanoseconds(std::string_view microseconds) {
  if (const std::int64_t plain = plain_nanoseconds(microseconds); plain >= 0) {
    return plain;
  }
  // 79 years: the base time, a start and a length together still fit into 64 bits.
  constexpr long double kLargest = 2.5e15L;
  const long double value = std::strtold(std::string(microseconds).c_str(), nullptr);
  if (!(value >= 0 && value < kLargest)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(std::llround(value * 1000));
}

/// The members of an event that are read.
enum class Member { Phase, Category, Name, Process, Thread, Start, Duration, Args, Other };

constexpr std::array<std::pair<std::string_view, Member>, 8> kMembers = {{
    {"ph", Member::Phase},
    {"cat", Member::Category},
    {"name", Member::Name},
    {"pid", Member::Process},
    {"tid", Member::Thread},
    {"ts", Member::Start},
    {"dur", Member::Duration},
    {"args", Member::Args},
}};

/// The row of a table that belongs to a key, or null.
template <typename Table>
auto row_named(const Table& table, std::string_view key) {
  // First characters are compared without the call that compares texts: rows have many keys.
  const auto* found = std::ranges::find_if(table, [key](const auto& row) {
    return row.first.size() == key.size() && row.first.front() == key.front() && row.first == key;
  });
  return found == table.end() ? nullptr : found;
}

/// The parser's client: knows where in the document it stands and fills one event at a time.
class Handler final : public nlohmann::json_sax<Json>, public KinetoClient {
 public:
  Handler(KinetoSource& source,
          const std::function<void(const KinetoEvent&)>& use,
          KinetoParser parser)
      : source_(source), use_(use), reads_plain_rows_(parser == KinetoParser::Fast) {}

  bool null() override { return other(); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(number_integer_t value) override { return integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return integer(value); }
  bool number_float(number_float_t /*value*/, const string_t& raw) override {
    take(raw, KinetoValue::Decimal);
    return true;
  }
  bool string(string_t& value) override {
    take(value, KinetoValue::Text);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return false; }  // Not part of JSON text.
  bool start_object(std::size_t /*size*/) override {
    open_object();
    return true;
  }
  bool end_object() override {
    const bool was_row = event_depth_ > 0 && depth_ == event_depth_;
    close_object();
    if (was_row && reads_plain_rows_) {
      read_plain_rows();
    }
    return true;
  }
  bool start_array(std::size_t /*size*/) override {
    open_list();
    return true;
  }
  bool end_array() override {
    close_list();
    return true;
  }
  bool key(string_t& name) override {
    name_member(name);
    return true;
  }

  void open_object() override {
    if (list_depth_ > 0 && depth_ == list_depth_) {
      event_.clear();
      event_depth_ = depth_ + 1;
    }
    open();
  }
  void close_object() override {
    if (event_depth_ > 0 && depth_ == event_depth_) {
      use_(event_);
      has_row_ = true;
      has_phase_ = has_phase_ || !event_.phase.empty();
      event_depth_ = 0;
    }
    --depth_;
  }
  void open_list() override {
    if (depth_ == 0 || (depth_ == 1 && list_depth_ == 0 && root_key_ == "traceEvents")) {
      list_depth_ = depth_ + 1;
      has_list_ = true;
      is_named_ = depth_ == 1;
    }
    append_arg("[");
    open();
  }
  void close_list() override {
    if (depth_ == list_depth_) {
      list_depth_ = 0;
    }
    append_arg("]");
    --depth_;
  }
  void name_member(std::string_view name) override {
    if (event_depth_ > 0) {
      event_key(name);
    } else if (depth_ == 1) {
      root_key_ = name;
    } else {
      key_ = name;
    }
  }
  [[nodiscard]] bool takes_value() const override {
    return event_depth_ == 0 ||
           (depth_ == event_depth_ ? member_ != Member::Other : arg_ != nullptr);
  }
  void take(std::string_view text, KinetoValue kind) override {
    if (event_depth_ > 0 && depth_ == event_depth_) {
      event_value(text, kind);
    } else if (event_depth_ > 0) {
      append_arg(text);
    } else {
      header_value(text);
    }
  }

  bool parse_error(std::size_t position,
                   const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    std::string message = error.what();
    for (const std::string_view lead : {"syntax error ", "number overflow"}) {
      if (const std::size_t at = message.find(lead); at != std::string::npos) {
        message.erase(0, at);
        break;
      }
    }
    message = printable(message.substr(0, message.find("; last read: ")));
    const std::size_t at = source_.skipped() + (position > 0 ? position - 1 : 0);
    if (source_.is_at_end() && at >= source_.offset()) {
      message =
          "the trace ends here, in the middle: it is cut short, as by a training that ended while "
          "the profiler wrote, or by a full disk; record or copy it again";
    } else if (message.find("expected end of input") != std::string::npos) {
      message = "the trace ends before this, and more follows: several traces in one file";
    } else {
      message += advice(last_token);
    }
    source_.fail(at, message);
  }

  /// A bare list is one of events only where an event says what it is; "traceEvents" may be empty.
  [[nodiscard]] bool has_list() const {
    return has_list_ && (has_phase_ || (is_named_ && !has_row_));
  }
  KinetoHeader take_header() { return std::move(header_); }

 private:
  /// Which row is broken, and what is known of the programs that write such rows.
  [[nodiscard]] std::string advice(const std::string& last_token) const {
    if (event_depth_ == 0) {
      return "";
    }
    constexpr std::size_t kShown = 60;
    std::string text = fmt::format(" in the row with the category '{}' and the name '{}'",
                                   printable(event_.category, kShown),
                                   printable(event_.name, kShown));
    if (event_.category == "python_function") {
      text +=
          ": PyTorch 2.0 and 2.1 do not escape the quotes of such names; record without "
          "with_stack=True, or with another version";
    } else if (last_token.ends_with("ti")) {
      text +=
          ": old profilers with use_cuda=True write tid without its first quote; put it in, as "
          "sed 's/, tid\"/, \"tid\"/g' does";
    } else {
      text += ": take that row out, or export the trace again";
    }
    return text;
  }

  bool other() {
    take("", KinetoValue::Other);
    return true;
  }
  template <typename Number>
  bool integer(Number value) {
    const fmt::format_int text(value);
    take({text.data(), text.size()}, KinetoValue::Integer);
    return true;
  }

  void open() {
    if (++depth_ > kMaxDepth) {
      source_.fail(source_.offset(), "nested deeper than 100 levels");
    }
  }

  /// Reads the rows that follow a row past the parser, which sees a list without them.
  void read_plain_rows() {
    const std::size_t depth = depth_;
    std::size_t read = 0;
    do {
      read = plain_rows_.read(source_.ahead(), *this);
      source_.skip(read);
      depth_ = depth;
      event_depth_ = 0;
    } while (read > 0);
  }

  void event_key(std::string_view name) {
    if (depth_ == event_depth_) {
      const auto* const known = row_named(kMembers, name);
      member_ = known == nullptr ? Member::Other : known->second;
      arg_ = nullptr;
    } else if (depth_ == event_depth_ + 1 && member_ == Member::Args) {
      const ArgName* const known = row_named(kArgNames, name);
      arg_ = known == nullptr ? nullptr : &event_.args[static_cast<std::size_t>(known->second)];
      if (arg_ != nullptr) {
        arg_->clear();
      }
    }
  }

  void append_arg(std::string_view text) {
    if (event_depth_ == 0 || arg_ == nullptr || depth_ <= event_depth_) {
      return;
    }
    const bool next = !arg_->empty() && arg_->back() != '[' && text != "]";
    if (arg_->size() + text.size() < kLongestArg) {
      arg_->append(next ? "," : "").append(text);
    }
  }

  void event_value(std::string_view text, KinetoValue kind) {
    const bool number = kind == KinetoValue::Integer || kind == KinetoValue::Decimal;
    if (member_ == Member::Start || member_ == Member::Duration) {
      (member_ == Member::Start ? event_.start_ns : event_.duration_ns) =
          number ? nanoseconds(text) : std::nullopt;
      header_.fractional_times = header_.fractional_times || kind == KinetoValue::Decimal;
      return;
    }
    if (std::string* const field = text_of(member_)) {
      *field = text.substr(0, kLongestName);
    }
  }

  [[nodiscard]] std::string* text_of(Member member) {
    switch (member) {
      case Member::Phase:
        return &event_.phase;
      case Member::Category:
        return &event_.category;
      case Member::Name:
        return &event_.name;
      case Member::Process:
        return &event_.process;
      case Member::Thread:
        return &event_.thread;
      default:
        return nullptr;
    }
  }

  void header_value(std::string_view text) {
    if (root_key_ == "baseTimeNanoseconds" && depth_ == 1) {
      const std::int64_t base = parse_number<std::int64_t>(text).value_or(0);
      constexpr std::int64_t kLargest = 4'000'000'000'000'000'000;
      header_.base_ns = base >= 0 && base < kLargest ? base : 0;
    } else if (root_key_ == "distributedInfo" && depth_ == 2) {
      distributed_value(text);
    } else if (root_key_ == "deviceProperties" && depth_ == 3 && key_ == "name") {
      header_.device =
          header_.devices == 0 ? std::string(text.substr(0, kLongestName)) : header_.device;
      ++header_.devices;
    }
  }

  void distributed_value(std::string_view text) {
    const auto number = parse_number<std::int64_t>(text);
    const bool plausible = number && *number >= 0 && *number <= kMaxKinetoRanks;
    if (key_ == "rank") {
      header_.rank = plausible ? number : std::nullopt;
    } else if (key_ == "world_size") {
      header_.world_size = plausible ? number : std::nullopt;
    } else if (key_ == "backend") {
      header_.backend = text.substr(0, kLongestName);
    } else if (key_ == "nccl_version") {
      header_.nccl_version = text.substr(0, kLongestName);
    }
  }

  KinetoSource& source_;
  const std::function<void(const KinetoEvent&)>& use_;
  KinetoHeader header_;
  KinetoEvent event_;
  std::size_t depth_ = 0;        ///< Open lists and objects.
  std::size_t list_depth_ = 0;   ///< `depth_` inside the list of events; 0 outside it.
  std::size_t event_depth_ = 0;  ///< `depth_` of an event's members; 0 outside events.
  bool has_list_ = false;
  bool is_named_ = false;  ///< The list is "traceEvents", and not bare.
  bool has_row_ = false;
  bool has_phase_ = false;  ///< A row has "ph", without which it is no event.
  std::string root_key_;
  std::string key_;                ///< Of the header's last member inside a list or an object.
  Member member_ = Member::Other;  ///< Of the event whose value comes.
  std::string* arg_ = nullptr;     ///< The argument whose value comes.
  bool reads_plain_rows_;
  KinetoPlainRows plain_rows_;
};

}  // namespace

void KinetoEvent::clear() {
  for (std::string* text : {&phase, &category, &name, &process, &thread}) {
    text->clear();
  }
  start_ns.reset();
  duration_ns.reset();
  for (std::string& text : args) {
    text.clear();
  }
}

std::optional<std::int64_t> KinetoEvent::integer(KinetoArg which) const {
  return parse_number<std::int64_t>(arg(which));
}

KinetoHeader read_kineto_events(const std::string& path,
                                const std::function<void(const KinetoEvent&)>& use,
                                const ProgressCallback& on_progress,
                                KinetoParser parser) {
  KinetoSource source(path, on_progress);
  Handler handler(source, use, parser);
  Json::sax_parse(
      KinetoIterator{&source}, KinetoIterator{}, static_cast<nlohmann::json_sax<Json>*>(&handler));
  if (!handler.has_list()) {
    throw InputError(
        SourcePlace{path},
        "no list of events: neither 'traceEvents' nor a bare list of rows with \"ph\"; is "
        "this a trace of PyTorch's profiler?");
  }
  KinetoHeader header = handler.take_header();
  header.repaired = source.repaired();
  return header;
}

}  // namespace stepsim
