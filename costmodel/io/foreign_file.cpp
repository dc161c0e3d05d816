#include "costmodel/io/foreign_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace stepsim {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kWebPage =
    "a web page (HTML), as downloads without a login or of a viewer's address give: fetch the raw "
    "file";
constexpr std::string_view kUtf16 = "UTF-16, as PowerShell's > writes: save it as UTF-8";

/// First bytes and what they are the first bytes of. None of them begins a text of ours.
constexpr std::array kBeginnings = {
    std::pair("<!doctype html"sv, kWebPage),
    std::pair("<html"sv, kWebPage),
    std::pair("version https://git-lfs.github.com/"sv,
              "a pointer of Git LFS, and not the file itself: git lfs pull fetches that"sv),
    std::pair("\xff\xfe"sv, kUtf16),
    std::pair("\xfe\xff"sv, kUtf16),
    std::pair("pk\x03\x04"sv,
              "a zip archive, as PyTorch's .pt files and downloads of CI are: unpack it"sv),
    std::pair("\x28\xb5\x2f\xfd"sv, "packed by zstd: unpack it (zstd -d)"sv),
    std::pair("\xfd"
              "7zxz"sv,
              "packed by xz: unpack it (xz -d)"sv),
    std::pair("bzh"sv, "packed by bzip2: unpack it (bzip2 -d)"sv),
    std::pair("sqlite format 3"sv,
              "a database of SQLite, as Nsight Systems writes, which is not read"sv),
};

}  // namespace

std::string_view foreign_file(std::string_view beginning) {
  const std::size_t start = std::min(beginning.size(), beginning.find_first_not_of(" \t\r\n"));
  constexpr std::size_t kLongest = 40;
  std::string lower(beginning.substr(start, kLongest));
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const auto& [bytes, what] : kBeginnings) {
    if (lower.starts_with(bytes)) {
      return what;
    }
  }
  return "";
}

}  // namespace stepsim
