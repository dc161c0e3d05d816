#pragma once

#include <string>

namespace stepsim::ranks {

/// A temporary folder in which the ranks of a machine meet. It is removed in the end; one that a
/// killed process has left behind is removed by the next process that makes one.
class RendezvousFolder {
 public:
  /// Makes a folder that only this user can read. Raises EnvironmentFault.
  RendezvousFolder();
  ~RendezvousFolder();
  RendezvousFolder(const RendezvousFolder&) = delete;
  RendezvousFolder& operator=(const RendezvousFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;  ///< Held by this process and by those that it forks, until all have ended.
};

}  // namespace stepsim::ranks
