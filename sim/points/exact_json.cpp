#include "sim/points/exact_json.h"

namespace stepsim {

std::string exact_string(const std::string& value) {
  if (is_utf8(value)) {
    return Json(value).dump();
  }
  std::string hex;
  for (const char c : value) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return "{\"hex\":\"" + hex + "\"}";
}

std::string read_exact_string(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (!value.is_object() || !value.contains("hex") || !value["hex"].is_string()) {
    refuse_exact();
  }
  const auto hex = value["hex"].get<std::string>();
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse_exact();
  }
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

void refuse_exact() {
  throw InputError(
      "a result does not fit this build of stepsim, which has other members; compute the points "
      "again with one build");
}

}  // namespace stepsim
