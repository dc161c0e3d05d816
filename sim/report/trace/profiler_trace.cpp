#include "sim/report/trace/profiler_trace.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/io/json_file.h"

namespace stepsim {

namespace {

constexpr std::size_t kProfilerFlushAt = std::size_t{1} << 18;

/// The host's process; those of the device have the small numbers.
constexpr int kHostProcess = 1000;
constexpr int kFirstStream = 7;
constexpr int kFirstCommunicator = 20;
constexpr std::int64_t kCall = 1000;  // Nanoseconds, of every call on the host.

std::int64_t ns_of(SimTime time) {
  return time.time_since_epoch().count();
}

/// Nanoseconds as the microseconds of a trace.
std::string us_text(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

/// DDP waits and copies in a callback of the backward; updates beside it belong to it, too.
Phase phase_of(const TraceRow& row, const StepTimeline& timeline, Phase current) {
  if (row.kind == TraceRow::Kind::Collective) {
    return timeline.collectives[static_cast<std::size_t>(row.index)].bucket >= 0 ? Phase::Backward
                                                                                 : current;
  }
  switch (row.phase) {
    case Phase::Backward:
    case Phase::CopyOut:
    case Phase::BackwardOther:
      return Phase::Backward;
    case Phase::Optimizer:
    case Phase::OptimizerOther:
      return row.lane == kComputeStream ? Phase::Optimizer : Phase::Backward;
    default:
      return Phase::Forward;
  }
}

/// A name that no viewer takes for a collective, a copy or a synchronisation.
std::string kernel_name(std::string name) {
  for (const char* part : {"nccl", "sync", "launchkernel"}) {
    const std::string_view word = part;
    const auto same = [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) == b;
    };
    auto found = std::search(name.begin(), name.end(), word.begin(), word.end(), same);
    while (found != name.end()) {
      found = name.insert(found + 1, '_');
      found = std::search(found, name.end(), word.begin(), word.end(), same);
    }
  }
  for (const char* start : {"hip", "hccl", "Memcpy", "Memset", "dma"}) {
    if (name.rfind(start, 0) == 0) {
      return "op " + name;
    }
  }
  return name;
}

/// How PyTorch and NCCL call a collective.
struct CollectiveName {
  std::string_view kind;  ///< name_of(CollectiveKind)
  std::string_view call;  ///< "Collective name"
  std::string_view kernel;
};

CollectiveName name_of_collective(std::string_view kind) {
  constexpr std::array<CollectiveName, 6> kNames = {{
      {"all_reduce", "allreduce", "AllReduce_Sum"},
      {"reduce_scatter", "_reduce_scatter_base", "ReduceScatter_Sum"},
      {"all_gather", "_allgather_base", "AllGather"},
      {"broadcast", "broadcast", "Broadcast"},
      {"reduce", "reduce", "Reduce_Sum"},
      {"all_to_all", "all_to_all", "SendRecv"},
  }};
  const auto* found =
      std::ranges::find_if(kNames, [&](const CollectiveName& one) { return one.kind == kind; });
  return found == kNames.end() ? kNames.front() : *found;
}

/// An element type as kernels, calls and NCCL's names state it.
struct ElementName {
  std::int64_t bytes;
  std::string_view kernel;
  std::string_view call;
  std::string_view nccl;
};

/// The dtype on the wire; bytes where it does not divide the message.
ElementName element_of(const Scenario& scenario, double bytes) {
  constexpr ElementName kFloat = {4, "Float", "float", "f32"};
  constexpr ElementName kHalf = {2, "Half", "c10::Half", "f16"};
  constexpr ElementName kBfloat = {2, "BFloat16", "c10::BFloat16", "bf16"};
  constexpr ElementName kDouble = {8, "Double", "double", "f64"};
  constexpr ElementName kByte = {1, "Byte", "unsigned char", "u8"};
  const DdpOptions& ddp = scenario.ddp;
  Dtype dtype = scenario.model.parameter_dtype;
  dtype = ddp.mixed_param_dtype.value_or(dtype);
  dtype = ddp.mixed_reduce_dtype.value_or(dtype);
  dtype = hook_info(ddp.hook).wire_dtype.value_or(dtype);
  const ElementName element = dtype == Dtype::F16    ? kHalf
                              : dtype == Dtype::Bf16 ? kBfloat
                              : dtype == Dtype::F64  ? kDouble
                                                     : kFloat;
  const auto whole = static_cast<std::int64_t>(bytes);
  return whole % element.bytes == 0 ? element : kByte;
}

std::string external_id(std::int64_t id) {
  return fmt::format(R"("External id":{})", id);
}

/// What a call of the runtime shares with the work that it launches.
std::string correlation(std::int64_t id) {
  return fmt::format(R"("External id":{0},"correlation":{0})", id);
}

/// Members of a collective: all ranks, or those whose part arrives at all.
std::vector<int> members_of(const StepTimeline& timeline, std::size_t collective) {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    if (timeline.ranks[rank].ready_at[collective] != SimTime::max()) {
      members.push_back(static_cast<int>(rank));
    }
  }
  return members;
}

}  // namespace

ProfilerTrace::ProfilerTrace(const TraceSource& source, int rank, const std::string& path)
    : source_(source), rank_(rank), file_(path) {
  const Placement& placement = source.run.scenario().placement;
  node_ = placement.node_of(rank);
  device_ = rank;
  for (const int on_node : placement.node_ranks().first(static_cast<std::size_t>(node_))) {
    device_ -= on_node;
  }
}

/// The head names the groups of the first step.
void ProfilerTrace::begin(const StepTimeline& timeline) {
  const Scenario& scenario = source_.run.scenario();
  std::vector<int> world(static_cast<std::size_t>(scenario.ranks));
  std::iota(world.begin(), world.end(), 0);
  (void)group_of(world);
  for (std::size_t c = 0; c < timeline.collectives.size(); ++c) {
    (void)group_of(members_of(timeline, c));
  }
  std::vector<std::string> configs(groups_.size());
  for (const auto& [ranks, group] : groups_) {
    configs[static_cast<std::size_t>(group.number)] = fmt::format(
        R"({{"pg_name": "{}", "pg_desc": "{}", "backend_config": "cuda:nccl", "pg_size": {}, )"
        R"("ranks": [{}]}})",
        group.number,
        group.number == 0 ? "default_pg" : "subgroup",
        ranks.size(),
        fmt::join(ranks, ", "));
  }
  // HTA looks for the first "rank": with a space behind it, line by line.
  text_ = fmt::format(
      "{{\n\"schemaVersion\": 1,\n\"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, "
      "\"world_size\": {}, \"pg_count\": {}, \"pg_config\": [{}]}},\n\"deviceProperties\": [",
      rank_,
      scenario.ranks,
      configs.size(),
      fmt::join(configs, ", "));
  const Profile& profile = source_.run.profile();
  const std::string device = json_text(profile.device.empty() ? profile.name : profile.device);
  const int per_node = scenario.placement.node_ranks()[static_cast<std::size_t>(node_)];
  for (int id = 0; id < per_node; ++id) {
    text_ += fmt::format("{}{{\"id\": {}, \"name\": {}}}", id == 0 ? "" : ", ", id, device);
  }
  text_ += fmt::format(
      "],\n\"record_shapes\": 1,\n\"host_name\": \"node{}\",\n\"baseTimeNanoseconds\": 0,\n"
      "\"displayTimeUnit\": \"ms\",\n\"traceName\": {},\n\"traceEvents\": [",
      node_,
      json_text(fmt::format("predicted by stepsim: {}, {}", scenario.name, source_.policy)));
  metadata(kHostProcess, "process_name", R"("name":"python")");
  metadata(kHostProcess, "process_labels", R"("labels":"CPU")");
  metadata(kHostProcess, "process_sort_index", R"("sort_index":0)");
  metadata(device_, "process_name", R"("name":"python")");
  metadata(device_, "process_labels", fmt::format(R"("labels":"GPU {}")", device_));
  metadata(device_, "process_sort_index", fmt::format(R"("sort_index":{})", 1 + device_));
}

/// The group of these ranks; a new one where there was none.
ProfilerTrace::Group& ProfilerTrace::group_of(const std::vector<int>& ranks) {
  return groups_.try_emplace(ranks, Group{static_cast<int>(groups_.size())}).first->second;
}

void ProfilerTrace::add(const TraceStep& step) {
  if (groups_.empty()) {
    begin(step.timeline);
  }
  const RankTimeline& times = step.timeline.ranks[static_cast<std::size_t>(rank_)];
  const std::int64_t begin = ns_of(times.start);
  const std::int64_t end = ns_of(times.end);
  const std::string name = fmt::format("ProfilerStep#{}", step.step);
  host_row("user_annotation", name, false, begin, end, external_id(next_id_++));
  const std::vector<Launch> launches = launches_of(step);
  const std::int64_t data_end =
      std::min(data_end_of(step), launches.empty() ? end : launches.front().enqueued_at);
  if (data_end > begin) {
    host_row("user_annotation",
             "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
             false,
             begin,
             data_end,
             external_id(next_id_++));
  }
  add_phases(launches);
  for (const Launch& launch : launches) {
    add_launch(step, launch);
  }
  const std::int64_t last = launches.empty() ? begin : launches.back().enqueued_at + kCall;
  if (end > last) {
    host_row("cuda_runtime", "cudaDeviceSynchronize", false, last, end, correlation(next_id_++));
  }
}

void ProfilerTrace::finish() {
  text_ += "\n]}\n";
  file_.write(text_);
  text_.clear();
  file_.finish();
}

/// When the first batch of a step is there.
std::int64_t ProfilerTrace::data_end_of(const TraceStep& step) const {
  const std::vector<TraceRow>& rows = step.rows.of_rank(rank_);
  const bool loads = !rows.empty() && rows.front().phase == Phase::Data;
  return ns_of(loads ? rows.front().end
                     : step.timeline.ranks[static_cast<std::size_t>(rank_)].start);
}

/// In the order of the host's calls, each at a time of its own that is no later than the work.
std::vector<ProfilerTrace::Launch> ProfilerTrace::launches_of(const TraceStep& step) {
  const RankTimeline& times = step.timeline.ranks[static_cast<std::size_t>(rank_)];
  std::vector<Launch> launches;
  for (const TraceRow& row : step.rows.of_rank(rank_)) {
    if (row.kind == TraceRow::Kind::Idle) {
      continue;
    }
    Launch launch;
    launch.row = &row;
    launch.begin = ns_of(row.begin);
    launch.end = ns_of(row.end);
    launch.ready = row.kind == TraceRow::Kind::Collective
                       ? ns_of(times.ready_at[static_cast<std::size_t>(row.index)])
                       : launch.begin;
    launch.enqueued_at = ns_of(row.enqueued_at);
    if (launch.end == launch.begin) {
      ++left_out_;
    } else {
      launches.push_back(launch);
    }
  }
  std::ranges::stable_sort(launches, [](const Launch& a, const Launch& b) {
    // A bucket that a kernel makes ready is launched before the next kernel.
    const bool a_first = a.row->kind == TraceRow::Kind::Collective;
    const bool b_first = b.row->kind == TraceRow::Kind::Collective;
    return std::tuple(a.row->enqueued_at, a.ready, !a_first) <
           std::tuple(b.row->enqueued_at, b.ready, !b_first);
  });
  std::int64_t latest = ns_of(times.end) - 2 * kCall;
  std::vector<std::int64_t> bounds(launches.size());
  for (std::size_t i = launches.size(); i-- > 0;) {
    latest = std::min(launches[i].ready, latest);
    bounds[i] = latest;
    latest -= kCall;
  }
  const std::int64_t first = data_end_of(step);
  std::int64_t free = ns_of(times.start);
  Phase phase = Phase::Forward;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    Launch& launch = launches[i];
    launch.enqueued_at = std::max(free, std::min(std::max(launch.enqueued_at, first), bounds[i]));
    free = launch.enqueued_at + kCall;
    phase = phase_of(*launch.row, step.timeline, phase);
    launch.phase = phase;
  }
  return launches;
}

/// One annotation for each stretch of launches of a part.
void ProfilerTrace::add_phases(const std::vector<Launch>& launches) {
  for (std::size_t first = 0; first < launches.size();) {
    std::size_t last = first;
    while (last + 1 < launches.size() && launches[last + 1].phase == launches[first].phase) {
      ++last;
    }
    const Phase phase = launches[first].phase;
    const bool backward = phase == Phase::Backward;
    const bool is_adamw = source_.run.scenario().optimizer == OptimizerKind::AdamW;
    host_row(backward ? "cpu_op" : "user_annotation",
             backward                  ? "autograd::engine::evaluate_function: Backward"
             : phase == Phase::Forward ? "DistributedDataParallel.forward"
             : is_adamw                ? "Optimizer.step#AdamW.step"
                                       : "Optimizer.step#SGD.step",
             backward,
             launches[first].enqueued_at,
             launches[last].enqueued_at + kCall,
             external_id(next_id_++));
    first = last + 1;
  }
}

void ProfilerTrace::add_launch(const TraceStep& step, const Launch& launch) {
  const std::int64_t id = next_id_++;
  const bool backward = launch.phase == Phase::Backward;
  const bool collective = launch.row->kind == TraceRow::Kind::Collective;
  if (collective) {
    add_collective(step, launch, id);
  }
  host_row("cuda_runtime",
           "cudaLaunchKernel",
           backward,
           launch.enqueued_at,
           launch.enqueued_at + kCall,
           correlation(id));
  if (!collective) {
    const std::string name = kernel_name(work_name(*launch.row, source_.labels));
    device_row(json_text(name), kFirstStream + launch.row->lane, launch, id, "");
  }
}

/// The call that holds the launch, and the kernel, which holds the wait.
void ProfilerTrace::add_collective(const TraceStep& step, const Launch& launch, std::int64_t id) {
  const auto c = static_cast<std::size_t>(launch.row->index);
  const CollectiveUse& use = step.timeline.collectives[c];
  const std::string_view kind = name_of(use.kind);
  const CollectiveName name = name_of_collective(kind);
  const ElementName element = element_of(source_.run.scenario(), use.bytes);
  const std::vector<int> members = members_of(step.timeline, c);
  const auto ranks = static_cast<std::int64_t>(members.size());
  // The whole buffer is what an all-gather makes and what a reduce-scatter takes.
  const auto whole = static_cast<std::int64_t>(use.bytes) / element.bytes;
  const std::int64_t in = kind == "all_gather" ? whole / ranks : whole;
  const std::int64_t out = kind == "reduce_scatter" ? whole / ranks : whole;
  host_row("user_annotation",
           fmt::format("nccl:{}", kind),
           launch.phase == Phase::Backward,
           launch.enqueued_at,
           launch.enqueued_at + kCall,
           fmt::format(
               R"({},"Input Dims":[[{}]],"Input type":["{}"])", external_id(id), in, element.call));
  Group& group = group_of(members);
  device_row(
      fmt::format("\"ncclKernel_{}_{}\"", name.kernel, element.nccl),
      kFirstCommunicator + launch.row->lane,
      launch,
      id,
      fmt::format(
          R"(,"Collective name":"{}","In msg nelems":{},"Out msg nelems":{},"Group size":{},)"
          R"("dtype":"{}","Process Group Name":"{}","Process Group Description":"{}",)"
          R"("Process Group Ranks":"[{}]","Seq":{},"Comms Id":"{}")",
          name.call,
          in,
          out,
          ranks,
          element.kernel,
          group.number,
          group.number == 0 ? "default_pg" : "subgroup",
          fmt::join(members, ", "),
          group.next_seq++,
          group.number));
}

/// `arguments`: members of a JSON object.
void ProfilerTrace::host_row(std::string_view category,
                             std::string_view name,
                             bool backward,
                             std::int64_t begin,
                             std::int64_t end,
                             std::string_view arguments) {
  event(fmt::format(
      R"({{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
      category,
      name,
      kHostProcess,
      kHostProcess + (backward ? 1 : 0),
      us_text(begin),
      us_text(end - begin),
      arguments));
}

/// `name` as JSON.
void ProfilerTrace::device_row(std::string_view name,
                               int stream,
                               const Launch& launch,
                               std::int64_t id,
                               std::string_view more) {
  event(fmt::format(
      R"({{"ph":"X","cat":"kernel","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{},)"
      R"("device":{},"context":1,"stream":{}{}}}}})",
      name,
      device_,
      stream,
      us_text(launch.begin),
      us_text(launch.end - launch.begin),
      correlation(id),
      device_,
      stream,
      more));
}

void ProfilerTrace::metadata(int process, std::string_view what, std::string_view argument) {
  event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":0,"ts":0,"args":{{{}}}}})",
                    what,
                    process,
                    argument));
}

void ProfilerTrace::event(std::string_view text) {
  text_ += events_++ == 0 ? "\n" : ",\n";
  text_ += text;
  if (text_.size() >= kProfilerFlushAt) {
    file_.write(text_);
    text_.clear();
  }
}

}  // namespace stepsim
