#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepsim {

/// What somebody else's training keeps of its samples a second and GPU on more GPUs, all else (the
/// model, the batch of a GPU) being the same.
struct PublishedScaling {
  std::string job;
  double parameters = 0;
  std::string gpu;  ///< "A100"
  std::string sharding;
  int from_gpus = 1;
  int gpus = 1;
  double efficiency = 1;  ///< Samples/s a GPU on `gpus`, over those on `from_gpus`.
  std::string source;     ///< "pkusys/ElasticFlow@04a0109"
  std::string date;       ///< "2024-12"; empty where the source has none.
};

/// A job that grows, for which published ones are looked up.
struct GrownJob {
  double parameters = 0;
  std::string device;  ///< As the profile names it.
  int from_ranks = 1;
  int ranks = 1;
};

/// Returns all rows of the shipped table, none where it is not there. Raises InputError for a table
/// that cannot be read.
[[nodiscard]] std::vector<PublishedScaling> published_scaling();

/// Returns the rows that are nearest to a job, at most five and one of each job, the nearest first:
/// those that grow to at most twice or half as many times their GPUs, by the sum of how many times
/// the model, the GPUs and the growth differ, and whether it is the same GPU.
[[nodiscard]] std::vector<PublishedScaling> nearest_published(
    const std::vector<PublishedScaling>& all, const GrownJob& job);

}  // namespace stepsim
