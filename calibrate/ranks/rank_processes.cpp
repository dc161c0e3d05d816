#include "calibrate/ranks/rank_processes.h"

#include "calibrate/ranks/launched_group.h"
#include "calibrate/ranks/rank_group.h"
#include "calibrate/ranks/rendezvous_folder.h"
#include "costmodel/base/input_error.h"

namespace stepsim {

void RankContext::send(const std::string& line) const {
  ranks::send_message(to_parent_, ranks::kLine, line);
}

std::string RankContext::broadcast(const std::string& from_rank_0) const {
  if (seat_.rank > 0) {
    return ranks::receive_message(from_parent_).substr(1);
  }
  ranks::send_message(to_parent_, ranks::kBroadcast, from_rank_0);
  return from_rank_0;
}

void run_ranks(int ranks,
               const std::function<void(const RankContext&)>& body,
               const std::function<void(int rank, const std::string& line)>& on_line,
               LaunchedGroup* launched,
               RankPatience patience) {
  if (launched != nullptr) {
    launched->run(ranks, body, on_line, patience);
    return;
  }
  if (ranks < 1) {
    throw InputError("ranks: {} is too few; at least 1 process is needed", ranks);
  }
  const ranks::RendezvousFolder folder;
  const ranks::SignalsToPipe signals;
  ranks::RankGroup group(std::vector<int>(static_cast<std::size_t>(ranks), -1), on_line, patience);
  RankSeat seat;
  seat.folder = folder.path();
  group.start(body, seat);
  if (!group.run(signals.reader())) {
    throw Interrupted{};
  }
}

}  // namespace stepsim
