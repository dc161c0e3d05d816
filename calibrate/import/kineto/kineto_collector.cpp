#include "calibrate/import/kineto/kineto_collector.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/kineto/kineto_backlog.h"
#include "calibrate/import/kineto/kineto_dims.h"
#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

constexpr std::string_view kStepName = "ProfilerStep#";
/// What gloo gathers and scatters whole tensors by; functional collectives take the second.
constexpr std::array<std::string_view, 2> kBaseGathers = {"c10d::_allgather_base_",
                                                          "c10d::allgather_into_tensor_coalesced_"};
constexpr std::array<std::string_view, 2> kBaseScatters = {
    "c10d::_reduce_scatter_base_", "c10d::reduce_scatter_tensor_coalesced_"};
constexpr std::string_view kCompiledGraph = "CompiledFunction";
constexpr std::string_view kDdpReducer = "torch.distributed.ddp.reducer::";
constexpr std::string_view kDdpForward = "DistributedDataParallel.forward";

/// What a category means; its names changed with the versions, and so did their case.
KinetoRowKind kind_of_rows(std::string category) {
  using RowKind = KinetoRowKind;
  std::transform(category.begin(), category.end(), category.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const auto& [name, rows] : {std::pair("cpu_op", RowKind::Host),
                                   std::pair("operator", RowKind::Host),
                                   std::pair("user_annotation", RowKind::Host),
                                   std::pair("cuda_runtime", RowKind::Runtime),
                                   std::pair("cuda_driver", RowKind::Runtime),
                                   std::pair("hip_runtime", RowKind::Runtime),
                                   std::pair("runtime", RowKind::Runtime),
                                   std::pair("kernel", RowKind::Kernel),
                                   std::pair("gpu_memcpy", RowKind::Copy),
                                   std::pair("memcpy", RowKind::Copy),
                                   std::pair("gpu_memset", RowKind::Memset),
                                   std::pair("memset", RowKind::Memset),
                                   std::pair("cuda_sync", RowKind::Sync)}) {
    if (category == name) {
      return rows;
    }
  }
  return RowKind::Skip;
}

/// Launches of devices that are not read: xpu_runtime, mtia_runtime, privateuse1_runtime.
bool is_other_runtime(const std::string& category) {
  return category.ends_with("_runtime") || category.ends_with("_driver");
}

/// Work of a device under a category that is not read. gpu_user_annotation repeats the host's.
bool is_of_device(const KinetoEvent& event) {
  return !event.arg(KinetoArg::Stream).empty() && event.category != "gpu_user_annotation";
}

bool starts_with(std::string_view text, std::string_view lead) {
  return text.substr(0, lead.size()) == lead;
}

/// hip… of ROCm as cuda… of CUDA; cu… of the driver.
KinetoCallKind kind_of_call(std::string_view name) {
  using enum KinetoCallKind;
  const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
  if (has("LaunchKernel") || has("GraphLaunch")) {
    return KernelLaunch;
  }
  if (name == "cudaMemcpy" || name == "hipMemcpy" || name == "hipMemcpyWithStream") {
    return BlockingCopy;
  }
  return has("StreamSynchronize")   ? StreamSync
         : has("EventSynchronize")  ? EventSync
         : has("DeviceSynchronize") ? DeviceSync
         : has("StreamWaitEvent")   ? StreamWait
                                    : Other;
}

/// The part of the step that an annotation or an op of autograd names, and whether it is the
/// former.
std::optional<std::pair<KinetoPart, bool>> phase_of(std::string_view name) {
  if (name == kDdpForward || name == "## forward ##") {
    return std::pair(KinetoPart::Forward, true);
  }
  if (name == "## backward ##") {
    return std::pair(KinetoPart::Backward, true);
  }
  if (starts_with(name, "autograd::engine::evaluate_function")) {
    return std::pair(KinetoPart::Backward, false);
  }
  if (starts_with(name, "Optimizer.step#") || name == "## optimizer ##") {
    return std::pair(KinetoPart::Optimizer, true);
  }
  return std::nullopt;
}

std::optional<std::int64_t> from_0_to(std::int64_t most, std::optional<std::int64_t> value) {
  return value && *value >= 0 && *value <= most ? value : std::nullopt;
}

/// Elements of the first tensor of "Input Dims".
std::optional<std::int64_t> elements_in_dims(const std::string& dims) {
  const auto sizes = dims_of(dims, 0);
  return sizes ? std::optional(elements_in(*sizes)) : std::nullopt;
}

/// The first word of "[float,Scalar]".
std::string first_type(const std::string& types) {
  const auto list = inner_list(types, 0);
  return list ? std::string(list->substr(0, list->find(','))) : "";
}

std::vector<int> ranks_of(const std::string& text) {
  const auto list = inner_list(text, 0);
  const auto values = list ? whole_numbers(*list) : std::nullopt;
  std::vector<int> ranks;
  for (const std::int64_t value : values.value_or(std::vector<std::int64_t>())) {
    if (value < 0 || value > kMaxKinetoRanks) {
      return {};
    }
    ranks.push_back(static_cast<int>(value));
  }
  return ranks;
}

}  // namespace

void KinetoCollector::add(const KinetoEvent& event) {
  ++trace_.events;
  if (event.phase == "X") {
    add_complete(event);
  }
}

KinetoRowKind KinetoCollector::rows_of(const KinetoEvent& event) {
  // PyTorch built without Kineto (Debian's) writes a bare list without categories.
  if (event.category.empty() && event.process == "CPU functions") {
    return KinetoRowKind::Host;
  }
  const auto known = row_kinds_.find(event.category);
  return known != row_kinds_.end()
             ? known->second
             : row_kinds_.emplace(event.category, kind_of_rows(event.category)).first->second;
}

void KinetoCollector::add_complete(const KinetoEvent& event) {
  using RowKind = KinetoRowKind;
  const RowKind rows = rows_of(event);
  if (rows == RowKind::Skip) {
    if (is_other_runtime(event.category)) {
      trace_.other_runtimes.insert(event.category);
    } else if (is_of_device(event)) {
      other_devices_.insert(event.category);
    }
    return;
  }
  ++trace_.rows;
  if (rows == RowKind::Sync) {
    const auto value = [&event](KinetoArg arg) { return event.integer(arg).value_or(-1); };
    syncs_.push_back({value(KinetoArg::Correlation),
                      value(KinetoArg::Stream),
                      value(KinetoArg::WaitOnStream),
                      value(KinetoArg::WaitOnRecord)});
    return;
  }
  if (!event.start_ns || !event.duration_ns) {
    ++trace_.unusable;
    return;
  }
  const KinetoSpan span = {*event.start_ns, *event.duration_ns};
  if (rows == RowKind::Host) {
    add_host(event, {span, thread_of(event)});
  } else if (rows == RowKind::Runtime) {
    add_runtime(event, span);
  } else {
    add_gpu(event,
            span,
            rows == RowKind::Kernel ? kernels_[at(name_of_kernel(event.name))].kind
            : rows == RowKind::Copy ? KinetoClass::Memcpy
                                    : KinetoClass::Memset);
  }
}

void KinetoCollector::add_runtime(const KinetoEvent& event, const KinetoSpan& span) {
  if (event.name != "INVALID") {
    trace_.calls.push_back(
        {kind_of_call(event.name),
         {span, thread_of(event), event.integer(KinetoArg::Correlation).value_or(-1)}});
  }
}

void KinetoCollector::add_host(const KinetoEvent& event, const KinetoLaunch& at) {
  // A compiled DDP has no row of its forward, but its reducer copies gradients.
  has_ddp_ = has_ddp_ || event.name == kDdpForward || starts_with(event.name, kDdpReducer);
  const bool gloo = starts_with(event.name, "gloo:");
  if (starts_with(event.name, kStepName)) {
    const auto number = whole_numbers(std::string_view{event.name}.substr(kStepName.size()));
    if (number && number->size() == 1) {
      trace_.steps.push_back({number->front(), at.span, at.thread});
    }
  } else if (gloo || starts_with(event.name, "nccl:")) {
    Statement statement = statement_of(event);
    statement.kind = collective_kind_of_call(event.name);
    calls_.push_back({at, std::move(statement), gloo});
  } else if (std::ranges::find(kBaseGathers, event.name) != kBaseGathers.end()) {
    add_base_call(event, at.span.start_ns, false);
  } else if (std::ranges::find(kBaseScatters, event.name) != kBaseScatters.end()) {
    add_base_call(event, at.span.start_ns, true);
  } else if (event.name == "record_param_comms") {
    comm_records_.push_back({at, statement_of(event), false});
  } else if (const auto phase = phase_of(event.name)) {
    trace_.phases.push_back({phase->first, phase->second, at.span, at.thread});
  } else if (event.name == kCompiledGraph) {
    const auto place =
        table_of_numbers(event.arg(KinetoArg::InputType), event.arg(KinetoArg::InputDims));
    if (place) {
      add_tensor(event, at, KinetoTensorOf::Compiled, *place);
    }
  } else if (const auto telling = tensor_of(event.name)) {
    add_tensor(event, at, telling->first, telling->second);
  }
}

void KinetoCollector::add_tensor(const KinetoEvent& event,
                                 const KinetoLaunch& at,
                                 KinetoTensorOf of,
                                 std::size_t place) {
  auto dims = dims_of(event.arg(KinetoArg::InputDims), place);
  if (!dims) {
    return;
  }
  std::string dtype =
      of == KinetoTensorOf::Gradient ? dtype_name(first_type(event.arg(KinetoArg::InputType))) : "";
  trace_.tensors.push_back({of, std::move(*dims), std::move(dtype), at.span.start_ns, at.thread});
}

void KinetoCollector::add_gpu(const KinetoEvent& event, const KinetoSpan& span, KinetoClass kind) {
  GpuRow row;
  row.correlation = event.integer(KinetoArg::Correlation).value_or(-1);
  row.op.kind = kind;
  row.op.name = name_of_kernel(event.name);
  row.op.stream = event.integer(KinetoArg::Stream).value_or(0);
  row.op.span = span;
  if (kernels_[at(row.op.name)].nccl && kind != KinetoClass::Memcpy &&
      kind != KinetoClass::Memset) {
    row.statement = static_cast<std::ptrdiff_t>(kernel_statements_.size());
    kernel_statements_.push_back(statement_of(event));
  }
  gpu_rows_.push_back(row);
}

KinetoCollector::Statement KinetoCollector::statement_of(const KinetoEvent& event) {
  Statement statement;
  statement.kind = collective_kind_of_call(event.arg(KinetoArg::CollectiveName));
  statement.dtype = event.arg(KinetoArg::Dtype);
  statement.in_elements = from_0_to(kMaxKinetoElements, event.integer(KinetoArg::InElements));
  statement.out_elements = from_0_to(kMaxKinetoElements, event.integer(KinetoArg::OutElements));
  statement.group_name = event.arg(KinetoArg::GroupName);
  statement.group_ranks = event.arg(KinetoArg::GroupRanks);
  statement.group_size = from_0_to(kMaxKinetoRanks, event.integer(KinetoArg::GroupSize));
  statement.number = event.integer(KinetoArg::Sequence);
  statement.communicator = event.arg(KinetoArg::Communicator);
  if (!statement.in_elements) {
    // A list of tensors has neither a shape nor a type here.
    const std::string type = first_type(event.arg(KinetoArg::InputType));
    const bool tensor = !type.empty() && type != "TensorList" && type != "Scalar" &&
                        type.find('[') == std::string::npos;
    if (tensor) {
      statement.in_elements = elements_in_dims(event.arg(KinetoArg::InputDims));
      statement.dtype = type;
    }
  }
  return statement;
}

int KinetoCollector::thread_of(const KinetoEvent& event) {
  return threads_
      .try_emplace(std::pair(event.process, event.thread), static_cast<int>(threads_.size()))
      .first->second;
}

int KinetoCollector::name_of_kernel(const std::string& name) {
  const auto [found, added] =
      kernel_names_.try_emplace(name, static_cast<int>(trace_.names.size()));
  if (added) {
    trace_.names.push_back(name);
    kernels_.push_back({class_of_kernel(name), is_nccl(name)});
  }
  return found->second;
}

void KinetoCollector::shift_to_base() {
  const std::int64_t base = trace_.header.base_ns;
  for (KinetoStep& step : trace_.steps) {
    step.span.start_ns += base;
  }
  for (GpuRow& row : gpu_rows_) {
    row.op.span.start_ns += base;
  }
  for (KinetoCall& call : trace_.calls) {
    call.at.span.start_ns += base;
  }
  for (KinetoPhase& phase : trace_.phases) {
    phase.span.start_ns += base;
  }
  for (KinetoTensor& tensor : trace_.tensors) {
    tensor.start_ns += base;
  }
  for (BaseCall& call : base_calls_) {
    call.start_ns += base;
  }
  for (std::vector<Call>* calls : {&calls_, &comm_records_}) {
    for (Call& call : *calls) {
      call.at.span.start_ns += base;
    }
  }
}

void KinetoCollector::sort_host_rows() {
  const auto by_correlation = [](const KinetoCall& a, const KinetoCall& b) {
    return std::pair(a.at.correlation, a.at.span.start_ns) <
           std::pair(b.at.correlation, b.at.span.start_ns);
  };
  std::ranges::stable_sort(trace_.calls, by_correlation);
  for (std::vector<Call>* calls : {&calls_, &comm_records_}) {
    std::ranges::stable_sort(*calls, [](const Call& a, const Call& b) {
      return std::pair(a.at.thread, a.at.span.start_ns) <
             std::pair(b.at.thread, b.at.span.start_ns);
    });
  }
}

KinetoCall* KinetoCollector::call_of(std::int64_t correlation) const {
  const auto found = std::lower_bound(
      trace_.calls.begin(),
      trace_.calls.end(),
      correlation,
      [](const KinetoCall& call, std::int64_t id) { return call.at.correlation < id; });
  const bool there = correlation >= 0 && found != trace_.calls.end();
  return there && found->at.correlation == correlation ? &*found : nullptr;
}

KinetoCollector::Call* KinetoCollector::enclosing(std::vector<Call>& calls,
                                                  const KinetoLaunch& launch) {
  const auto key = std::pair(launch.thread, launch.span.start_ns);
  auto after =
      std::upper_bound(calls.begin(), calls.end(), key, [](const auto& wanted, const Call& call) {
        return wanted < std::pair(call.at.thread, call.at.span.start_ns);
      });
  // Collective calls nest a few levels deep at most: a coalesced one holds those of its parts.
  constexpr int kDeepest = 8;
  for (int i = 0; i < kDeepest && after != calls.begin(); ++i) {
    --after;
    if (after->at.thread == launch.thread && launch.span.start_ns <= after->at.span.end_ns()) {
      return &*after;
    }
  }
  return nullptr;
}

void KinetoCollector::complete_syncs() {
  for (const Sync& sync : syncs_) {
    if (KinetoCall* call = call_of(sync.correlation)) {
      const KinetoCall* record = call_of(sync.record);
      call->stream = sync.stream;
      call->on_stream = sync.on_stream;
      call->event_ns = record == nullptr ? -1 : record->at.span.start_ns;
    }
  }
}

/// A collective's own call makes its stream wait; what waits for a collective stands outside.
void KinetoCollector::leave_waits_of_collectives() {
  for (KinetoCall& call : trace_.calls) {
    if (call.kind == KinetoCallKind::StreamWait) {
      const Call* record = enclosing(comm_records_, call.at);
      const bool own =
          (record != nullptr && record->launched) || enclosing(calls_, call.at) != nullptr;
      call.kind = own ? KinetoCallKind::Other : call.kind;
    }
  }
}

void KinetoCollector::take_size(const Statement& statement, KinetoCollective* collective) {
  if (collective->elements || !statement.in_elements || statement.dtype.empty()) {
    return;
  }
  const auto bytes = element_bytes(statement.dtype);
  if (!bytes) {
    throw InputError(SourcePlace{trace_.file},
                     "unknown element type '{}' of a collective; its size in bytes is "
                     "not known",
                     printable(statement.dtype));
  }
  std::int64_t whole = *statement.in_elements;
  if (collective->kind == "all_gather") {
    const std::int64_t ranks = statement.group_size.value_or(trace_.header.world_size.value_or(1));
    whole = statement.out_elements.value_or(0) > 0 ? *statement.out_elements : whole * ranks;
  }
  collective->elements = statement.in_elements;
  collective->bytes = whole * *bytes;
  collective->dtype = dtype_name(statement.dtype);
}

void KinetoCollector::add_collective(const KinetoSpan& span,
                                     std::int64_t stream,
                                     const KinetoLaunch& launch,
                                     const Statement& own) {
  const Call* call = enclosing(calls_, launch);
  Call* record = enclosing(comm_records_, launch);
  if (record != nullptr) {
    record->launched = true;
  }
  const Statement none;
  const std::array<const Statement*, 3> statements = {
      &own,
      call == nullptr ? &none : &call->statement,
      record == nullptr ? &none : &record->statement};
  KinetoCollective collective;
  collective.span = span;
  collective.stream = stream;
  collective.launch = launch;
  for (const Statement* statement : statements) {
    collective.kind = collective.kind.empty() ? statement->kind : collective.kind;
  }
  for (const Statement* statement : statements) {
    take_size(*statement, &collective);
    if (collective.group.empty() && !statement->group_name.empty()) {
      collective.group = statement->group_name + " " + statement->group_ranks;
      collective.group_ranks = ranks_of(statement->group_ranks);
    }
    if (!collective.number && statement->number) {
      collective.number = statement->number;
    }
    if (collective.communicator.empty()) {
      collective.communicator = statement->communicator;
    }
    if (!collective.group_size && statement->group_size) {
      collective.group_size = static_cast<int>(*statement->group_size);
    }
  }
  trace_.collectives.push_back(std::move(collective));
}

/// Raises InputError where nothing of the device is known since another runtime launched it, or
/// since its rows have other names.
void KinetoCollector::require_known_runtime() const {
  const bool known =
      !trace_.ops.empty() ||
      std::ranges::any_of(trace_.collectives, [](const auto& one) { return one.stream >= 0; });
  if (known) {
    return;
  }
  const SourcePlace place{trace_.file};
  constexpr std::string_view kOtherWays =
      "A training on such devices is recorded by stepsim_recorder.py, or told by its step times "
      "(stepcal import step-times)";
  const auto list = [](const std::set<std::string>& categories) {
    return printable(fmt::format("{}", fmt::join(categories, ", ")));
  };
  if (!trace_.other_runtimes.empty()) {
    throw InputError(place,
                     "device rows launched by {} are not read; those of cuda_runtime, cuda_driver "
                     "and hip_runtime are. {}",
                     list(trace_.other_runtimes),
                     kOtherWays);
  }
  if (gpu_rows_.empty() && !other_devices_.empty()) {
    throw InputError(place,
                     "device rows of the category {} are not read; those of CUDA and ROCm are. {}",
                     list(other_devices_),
                     kOtherWays);
  }
}

void KinetoCollector::find_earlier_work() {
  std::vector<KinetoGpuWork> work;
  std::int64_t first_call = std::numeric_limits<std::int64_t>::max();
  for (const GpuRow& row : gpu_rows_) {
    work.push_back({row.op.stream, row.op.span, call_of(row.correlation) != nullptr});
  }
  for (const KinetoCall& call : trace_.calls) {
    first_call = std::min(first_call, call.at.span.start_ns);
  }
  trace_.launched_before_ns = kineto_backlog(std::move(work), first_call);
}

void KinetoCollector::finish() {
  shift_to_base();
  sort_host_rows();
  find_earlier_work();
  std::set<std::int64_t> streams;
  for (GpuRow& row : gpu_rows_) {
    streams.insert(row.op.stream);
    const KinetoCall* call = call_of(row.correlation);
    if (call == nullptr) {
      ++trace_.without_launch;
    } else if (row.statement < 0) {
      row.op.launch = call->at;
      trace_.ops.push_back(row.op);
    } else {
      Statement& own = kernel_statements_[static_cast<std::size_t>(row.statement)];
      const std::string& name = trace_.names[static_cast<std::size_t>(row.op.name)];
      const std::string by_name = collective_kind_of_kernel(name);
      own.kind = own.kind.empty() && !by_name.empty() ? by_name : own.kind;
      add_collective(row.op.span, row.op.stream, call->at, own);
    }
  }
  tell_gloo_calls();
  for (const Call& call : calls_) {
    if (call.gloo) {
      add_collective(call.at.span, -1, call.at, call.statement);
    }
  }
  require_known_runtime();
  complete_syncs();
  leave_waits_of_collectives();
  trace_.streams.assign(streams.begin(), streams.end());
}

}  // namespace stepsim
