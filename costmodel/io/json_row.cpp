#include "costmodel/io/json_row.h"

#include <cmath>
#include <new>
#include <utility>

#include "costmodel/io/json_lines.h"

namespace stepsim {
namespace {

static_assert(kJsonPadding >= simdjson::SIMDJSON_PADDING);

/// Rows are flat; what is deeper is for JsonReader, which has a limit of its own.
constexpr std::size_t kDeepestRow = 32;
constexpr std::size_t kFirstCapacity = std::size_t{1} << 16;

/// Returns the value behind a result of simdjson. Raises RefusedRow for an error.
template <typename Value>
Value value_of(simdjson::simdjson_result<Value> result) {
  Value value;
  if (std::move(result).get(value) != simdjson::SUCCESS) {
    throw RefusedRow();
  }
  return value;
}

double number_of(simdjson::dom::element element) {
  switch (element.type()) {
    case simdjson::dom::element_type::DOUBLE:
    case simdjson::dom::element_type::INT64:
    case simdjson::dom::element_type::UINT64:
      return value_of(element.get_double());
    default:
      throw RefusedRow();
  }
}

/// An integer, also when it is written as 3.0 or 1e6, as JsonReader takes it.
std::int64_t integer_of(simdjson::dom::element element) {
  if (element.type() == simdjson::dom::element_type::INT64) {
    return value_of(element.get_int64());
  }
  if (element.type() != simdjson::dom::element_type::DOUBLE) {
    throw RefusedRow();
  }
  const double number = value_of(element.get_double());
  if (std::floor(number) != number || std::abs(number) > 0x1p53) {
    throw RefusedRow();
  }
  return static_cast<std::int64_t>(number);
}

/// One of 64 bits by the length and the ends of a key, which mostly tell the keys of a row apart.
std::uint64_t mark_of(std::string_view key) {
  const auto end = [](char c) { return static_cast<std::size_t>(static_cast<unsigned char>(c)); };
  const std::size_t ends = key.empty() ? 0 : 3 * end(key.front()) + 7 * end(key.back());
  return std::uint64_t{1} << (5 * key.size() + ends) % 64;
}

/// The marks of all keys together. Raises RefusedRow where a key is there twice.
std::uint64_t marks_of(simdjson::dom::object object) {
  std::uint64_t marks = 0;
  for (auto one = object.begin(); one != object.end(); ++one) {
    const std::string_view key = one.key();
    const std::uint64_t mark = mark_of(key);
    if ((marks & mark) != 0) {
      for (auto before = object.begin(); before != one; ++before) {
        if (before.key_equals(key)) {
          throw RefusedRow();
        }
      }
    }
    marks |= mark;
  }
  return marks;
}

/// Raises RefusedRow where a key is there twice in this value, or in one inside it.
void require_unique_keys(simdjson::dom::element element) {
  if (element.is_array()) {
    for (const simdjson::dom::element inside : value_of(element.get_array())) {
      require_unique_keys(inside);
    }
  } else if (element.is_object()) {
    const simdjson::dom::object object = value_of(element.get_object());
    (void)marks_of(object);
    for (const auto member : object) {
      require_unique_keys(member.value);
    }
  }
}

}  // namespace

JsonRow::JsonRow(simdjson::dom::object object)
    : object_(object), at_(object.begin()), marks_(marks_of(object)) {}

bool JsonRow::find(std::string_view key) {
  if ((marks_ & mark_of(key)) == 0) {
    return false;
  }
  // Rows are asked for their members in about the order in which they are written.
  const auto from = at_;
  for (; at_ != object_.end(); ++at_) {
    if (at_.key_equals(key)) {
      return true;
    }
  }
  for (at_ = object_.begin(); at_ != from; ++at_) {
    if (at_.key_equals(key)) {
      return true;
    }
  }
  return false;
}

simdjson::dom::element JsonRow::get(std::string_view key) {
  if (!find(key)) {
    throw RefusedRow();
  }
  return at_.value();
}

simdjson::dom::array JsonRow::array(std::string_view key) {
  return value_of(get(key).get_array());
}

bool JsonRow::has(std::string_view key) {
  return find(key);
}

bool JsonRow::is_null(std::string_view key) {
  return get(key).is_null();
}

double JsonRow::number(std::string_view key) {
  return number_of(get(key));
}

double JsonRow::not_negative(std::string_view key) {
  const double value = number(key);
  if (value < 0) {
    throw RefusedRow();
  }
  return value;
}

double JsonRow::not_negative_or(std::string_view key, double fallback) {
  return has(key) ? not_negative(key) : fallback;
}

std::int64_t JsonRow::integer(std::string_view key) {
  return integer_of(get(key));
}

int JsonRow::integer_in(std::string_view key, int lo, int hi) {
  const std::int64_t value = integer(key);
  if (value < lo || value > hi) {
    throw RefusedRow();
  }
  return static_cast<int>(value);
}

std::vector<std::int64_t> JsonRow::integers(std::string_view key) {
  const simdjson::dom::array values = array(key);
  std::vector<std::int64_t> result;
  result.reserve(values.size());
  for (const simdjson::dom::element value : values) {
    result.push_back(integer_of(value));
  }
  return result;
}

std::vector<JsonRow> JsonRow::objects(std::string_view key) {
  const simdjson::dom::array values = array(key);
  std::vector<JsonRow> result;
  result.reserve(values.size());
  for (const simdjson::dom::element value : values) {
    result.emplace_back(value_of(value.get_object()));
  }
  return result;
}

JsonRowParser::JsonRowParser() {
  if (parser_.allocate(kFirstCapacity, kDeepestRow) != simdjson::SUCCESS) {
    throw std::bad_alloc();
  }
}

JsonRow JsonRowParser::parse(std::string_view text) {
  if (text.find('\\') != std::string_view::npos) {
    throw RefusedRow();
  }
  const simdjson::dom::element row = value_of(parser_.parse(text.data(), text.size(), false));
  require_unique_keys(row);
  return JsonRow(value_of(row.get_object()));
}

}  // namespace stepsim
