#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// Draws of errors for the intervals of a prediction. Each kind of error has numbers of its own,
/// which do not depend on which other kinds a run has or what plays its steps, so that the same
/// draw of two predictions has the same errors. Over all draws the normal numbers of a kind have
/// mean 0 and variance 1 exactly, and its places are evenly spaced: intervals of 100 draws then
/// hardly depend on the seed.
class ErrorDraws {
 public:
  ErrorDraws(std::uint64_t seed, int draws);

  /// Goes on to the next draw.
  void next() { ++draw_; }
  double normal(std::string_view kind);
  /// A place between 0 and 1, 1 excluded.
  double place(std::string_view kind);
  /// A factor with median 1 and relative spread `sd`; exactly 1 without spread. It is log-normal up
  /// to e^2 = 7.4, and grows from there on as a straight line: an error of several times the
  /// quantity itself is no exponent.
  double factor(std::string_view kind, double sd);

 private:
  /// [draw]
  struct Numbers {
    std::vector<double> normals;
    std::vector<double> places;
  };
  const Numbers& numbers(std::string_view kind);

  std::uint64_t seed_;
  std::size_t draws_;
  std::size_t draw_ = 0;
  std::map<std::string, Numbers, std::less<>> by_kind_;
};

}  // namespace stepsim
