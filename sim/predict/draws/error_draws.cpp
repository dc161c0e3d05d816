#include "sim/predict/draws/error_draws.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodel/base/mapped.h"
#include "sim/predict/draws/noise.h"

namespace stepsim {
namespace {

/// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
  }
  return hash;
}

/// Moves and scales to mean 0 and variance 1.
void standardise(std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = sum_of(values) / count;
  const double variance =
      sum_of(values, [mean](double value) { return (value - mean) * (value - mean); }) / count;
  for (double& value : values) {
    value = variance > 0 ? (value - mean) / std::sqrt(variance) : value;
  }
}

}  // namespace

ErrorDraws::ErrorDraws(std::uint64_t seed, int draws)
    : seed_(seed), draws_(static_cast<std::size_t>(draws)) {}

double ErrorDraws::normal(std::string_view kind) {
  return numbers(kind).normals.at(draw_);
}

double ErrorDraws::place(std::string_view kind) {
  return numbers(kind).places.at(draw_);
}

double ErrorDraws::factor(std::string_view kind, double sd) {
  constexpr double kLogNormal = 2;
  const double score = sd * normal(kind);
  return std::exp(std::min(score, kLogNormal)) * std::max(1.0, score - (kLogNormal - 1));
}

const ErrorDraws::Numbers& ErrorDraws::numbers(std::string_view kind) {
  if (const auto known = by_kind_.find(kind); known != by_kind_.end()) {
    return known->second;
  }
  NoiseDraws noise(seed_ ^ hash_of(kind));
  Numbers numbers;
  for (std::size_t i = 0; i < draws_; ++i) {
    numbers.normals.push_back(noise.normal());
  }
  standardise(numbers.normals);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < draws_; ++i) {
    order.emplace_back(noise.uniform(), i);
  }
  std::ranges::sort(order);
  numbers.places.resize(draws_);
  for (std::size_t i = 0; i < draws_; ++i) {
    numbers.places[order[i].second] = (static_cast<double>(i) + 0.5) / static_cast<double>(draws_);
  }
  return by_kind_.emplace(kind, std::move(numbers)).first->second;
}

}  // namespace stepsim
