#include "tests/sim/parallel/fsdp2_cases.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/gzip_file.h"
#include "sim/parallel/fsdp2/shard_sequence.h"

namespace stepsim::test {
namespace {

using nlohmann::json;

Dtype dtype_named(const std::string& name) {
  static const std::map<std::string, Dtype> names = {{"float32", Dtype::F32},
                                                     {"bfloat16", Dtype::Bf16},
                                                     {"float16", Dtype::F16},
                                                     {"float64", Dtype::F64}};
  return names.at(name);
}

std::string name_in_torch(std::optional<Dtype> dtype) {
  if (!dtype) {
    return "uint8";
  }
  switch (*dtype) {
    case Dtype::Bf16:
      return "bfloat16";
    case Dtype::F16:
      return "float16";
    case Dtype::F64:
      return "float64";
    default:
      return "float32";
  }
}

/// The units of a file that have a group, by their place there.
class CaseUnits {
 public:
  CaseUnits(const json& file, const json& program) : mesh_(mesh_of(file)) {
    const std::vector<std::string> returns = program.value("returns_inner_output", json::array());
    const std::vector<std::string> late = program.value("own_parameters_last", json::array());
    const std::vector<std::string> unused = program.value("unused", json::array());
    for (const json& unit : file.at("units")) {
      if (unit.contains("params")) {
        numbers_[unit.at("unit")] = static_cast<int>(units.size());
        units.push_back(unit_of(unit, unused));
      }
    }
    for (ShardUnit& unit : units) {
      unit.returns_inner_output = std::ranges::count(returns, unit.name) > 0;
      unit.own_parameters_first = std::ranges::count(late, unit.name) == 0;
      unit.reduces_unused = program.value("reduce_scatter_unused_params", false);
    }
    for (const json& unit : file.at("units")) {
      if (unit.contains("params")) {
        ShardUnit& own = units[at(number(unit.at("unit")))];
        own.forward_prefetch = numbers(unit.at("forward_prefetch"));
        own.backward_prefetch = numbers(unit.at("backward_prefetch"));
      }
    }
  }

  [[nodiscard]] int number(const std::string& name) const { return numbers_.at(name); }
  [[nodiscard]] ShardMesh mesh() const { return mesh_; }

  std::vector<ShardUnit> units;

 private:
  static ShardMesh mesh_of(const json& file) {
    for (const json& unit : file.at("units")) {
      if (unit.contains("params")) {
        const std::vector<int> shape = unit.at("mesh_shape");
        return shape.size() == 1 ? ShardMesh{shape[0], 1, false}
                                 : ShardMesh{shape[1], shape[0], true};
      }
    }
    throw InputError("no unit has parameters");
  }

  static ShardUnit unit_of(const json& unit, const std::vector<std::string>& unused) {
    ShardUnit result;
    result.name = unit.at("unit");
    result.reshard_after_forward = unit.at("reshard_after_forward");
    result.slice_ranks = unit.at("slice_mesh") ? unit.at("slice_k").get<int>() : 0;
    result.unshard_in_backward = unit.at("unshard_in_backward");
    if (!unit.at("reduce_dtype").is_null()) {
      result.reduce_dtype = dtype_named(unit.at("reduce_dtype"));
    }
    for (std::size_t i = 0; i < unit.at("params").size(); ++i) {
      const json& parameter = unit.at("params")[i];
      ShardedTensor tensor;
      tensor.name = parameter.at("name");
      tensor.shape = parameter.at("shape").get<std::vector<std::int64_t>>();
      // Cut along another dimension, it has the padded sizes of one that is cut along this.
      std::swap(tensor.shape.front(), tensor.shape.at(parameter.value("shard_dim", 0)));
      tensor.stored = dtype_named(parameter.at("dtype"));
      const json& gathered = unit.at("param_dtype")[i];
      tensor.gathered = gathered.is_null() ? tensor.stored : dtype_named(gathered);
      tensor.trainable = parameter.at("requires_grad");
      tensor.used = std::ranges::count(unused, tensor.name) == 0;
      result.tensors.push_back(std::move(tensor));
    }
    return result;
  }

  [[nodiscard]] std::vector<int> numbers(const std::vector<std::string>& names) const {
    return mapped(names, [&](const std::string& name) { return number(name); });
  }

  ShardMesh mesh_;
  std::map<std::string, int> numbers_;
};

/// One rank's events as lines of text.
class EventLines {
 public:
  EventLines(const CaseUnits& units, int rank) : units_(units), rank_(rank) {}

  void add_mark(const std::string& text) { lines.push_back("mark " + text); }
  void add(const ShardEvent& event) {
    const ShardUnit& unit = units_.units[at(event.unit)];
    const ShardMesh mesh = units_.mesh();
    switch (event.act) {
      case ShardAct::PreForward:
        return line("pre_forward", unit);
      case ShardAct::PostForward:
        return line("post_forward", unit);
      case ShardAct::PreBackward:
        return line("pre_backward", unit);
      case ShardAct::PostBackward:
        return line("post_backward", unit);
      case ShardAct::Wait:
        return line("wait", unit);
      case ShardAct::Reshard:
        lines.push_back(
            fmt::format("reshard {} to {}", unit.name, event.slice ? "slice" : "sharded"));
        return;
      case ShardAct::Unshard: {
        line("unshard", unit);
        const int ranks = event.slice ? unit.slice_ranks : mesh.shards;
        if (ranks > 1) {
          const ShardBuffer buffer = gathered_buffer(unit, mesh.shards);
          collective("AG", buffer.elements / ranks, buffer, neighbours(ranks));
        }
        return;
      }
      case ShardAct::ReduceScatter: {
        const ShardBuffer buffer = reduced_buffer(unit, mesh.shards);
        collective("RS", buffer.elements, buffer, neighbours(mesh.shards));
        return;
      }
      case ShardAct::AllReduce: {
        ShardBuffer buffer = reduced_buffer(unit, mesh.shards);
        buffer.elements /= mesh.shards;
        std::vector<int> ranks;
        for (int replica = 0; replica < mesh.replicas; ++replica) {
          ranks.push_back(replica * mesh.shards + rank_ % mesh.shards);
        }
        collective("AR", buffer.elements, buffer, ranks);
        return;
      }
    }
  }
  void add_clip() {
    std::size_t tensors = 0;
    for (const ShardUnit& unit : units_.units) {
      tensors += static_cast<std::size_t>(std::ranges::count_if(
          unit.tensors, [](const ShardedTensor& one) { return one.trainable && one.used; }));
    }
    lines.push_back(fmt::format("AR {} float32 mesh dim", tensors));
  }

  std::vector<std::string> lines;

 private:
  void line(const char* what, const ShardUnit& unit) {
    lines.push_back(fmt::format("{} {}", what, unit.name));
  }
  void collective(const char* what,
                  std::int64_t elements,
                  const ShardBuffer& buffer,
                  const std::vector<int>& ranks) {
    lines.push_back(fmt::format(
        "{} {} {} {}", what, elements, name_in_torch(buffer.dtype), fmt::join(ranks, ",")));
  }
  [[nodiscard]] std::vector<int> neighbours(int count) const {
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) {
      ranks.push_back(rank_ / count * count + i);
    }
    return ranks;
  }

  const CaseUnits& units_;
  int rank_;
};

/// A recorded event in the same words.
std::string recorded_line(const json& event) {
  const std::string kind = event.at("ev");
  const auto ranks = [&] {
    const json& list = event.at("ranks");
    return list.is_string() ? list.get<std::string>()
                            : fmt::format("{}", fmt::join(list.get<std::vector<int>>(), ","));
  };
  if (kind == "mark") {
    return "mark " + event.at("text").get<std::string>();
  }
  if (kind == "AG" || kind == "RS" || kind == "AR") {
    return fmt::format("{} {} {} {}",
                       kind,
                       event.at(kind == "AR" ? "numel" : "in_numel").get<std::int64_t>(),
                       event.at("dtype").get<std::string>(),
                       ranks());
  }
  if (kind == "reshard") {
    return fmt::format(
        "reshard {} to {}", event.at("unit").get<std::string>(), event.at("to").get<std::string>());
  }
  return kind + " " + event.at("unit").get<std::string>();
}

/// Plays a file's steps: its marks and forward calls are the program.
class CasePlayer {
 public:
  CasePlayer(const json& file, const json& program, int rank)
      : program_(program),
        units_(file, program),
        sequence_(units_.units, units_.mesh()),
        out_(units_, rank) {}

  std::vector<std::string> play(const json& events) {
    out_.lines.clear();
    for (const json& event : events) {
      const std::string kind = event.at("ev");
      if (kind == "mark") {
        mark(event.at("text"));
      } else if (kind == "pre_forward" || kind == "post_forward") {
        const int unit = units_.number(event.at("unit"));
        kind == "pre_forward" ? sequence_.enter(unit) : sequence_.leave(unit);
        take();
      }
    }
    return std::move(out_.lines);
  }

 private:
  [[nodiscard]] bool listed(const char* key, const std::string& mark) const {
    const std::vector<std::string> marks = program_.value(key, json::array());
    return std::ranges::count(marks, mark) > 0;
  }

  void mark(const std::string& text) {
    out_.add_mark(text);
    if (text == "clip") {
      out_.add_clip();
    } else if (text.ends_with("backward")) {
      sequence_.backward(forwards_of(text), switches_);
      take();
    } else if (text.find("forward") != std::string::npos) {
      if (text.starts_with("micro ")) {
        switches_ = switches_of(std::stoul(text.substr(6)));
      }
      const std::size_t number =
          sequence_.begin_forward(!listed("no_grad", text), listed("input_requires_grad", text));
      forwards_[text] = number;
      if (!listed("no_grad", text)) {
        waiting_.push_back(number);
      }
    }
  }

  /// The forwards that a backward goes through: those that the program names, or all that none has
  /// gone through.
  std::vector<std::size_t> forwards_of(const std::string& backward) {
    const json named = program_.value("backward_of", json::object());
    if (!named.contains(backward)) {
      return std::exchange(waiting_, {});
    }
    const std::vector<std::string> marks = named.at(backward);
    return mapped(marks, [&](const std::string& mark) { return forwards_.at(mark); });
  }

  [[nodiscard]] ShardSwitches switches_of(std::size_t micro_batch) const {
    const auto flag = [&](const char* key) {
      const std::vector<bool> flags = program_.value(key, json::array());
      return micro_batch >= flags.size() || flags[micro_batch];
    };
    return {flag("requires_gradient_sync"),
            flag("requires_all_reduce"),
            flag("reshard_after_backward"),
            flag("is_last_backward")};
  }

  void take() {
    for (const ShardEvent& event : sequence_.events()) {
      out_.add(event);
    }
    sequence_.clear_events();
  }

  json program_;
  CaseUnits units_;
  ShardSequence sequence_;
  EventLines out_;
  ShardSwitches switches_;
  std::map<std::string, std::size_t> forwards_;
  std::vector<std::size_t> waiting_;
};

/// The first difference of the steps of one rank; empty: they are equal.
std::string difference(const json& file, const json& program, const json& steps, int rank) {
  CasePlayer player(file, program, rank);
  for (const json& step : steps) {
    const std::vector<std::string> ours = player.play(step.at("events"));
    const auto theirs = mapped(step.at("events"), recorded_line);
    const auto [own, recorded] = std::ranges::mismatch(ours, theirs);
    if (own != ours.end() || recorded != theirs.end()) {
      return fmt::format("{}, event {}, rank {}: {}, PyTorch: {}",
                         step.at("label").get<std::string>(),
                         recorded - theirs.begin(),
                         rank,
                         own != ours.end() ? *own : "the end",
                         recorded != theirs.end() ? *recorded : "the end");
    }
  }
  return {};
}

std::string difference(const json& file, const json& program) {
  if (const json by_rank = file.value("steps_by_rank", json()); by_rank.is_array()) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if (std::string text = difference(file, program, by_rank[rank], static_cast<int>(rank));
          !text.empty()) {
        return text;
      }
    }
  }
  return difference(file, program, file.at("steps"), 0);
}

}  // namespace

CaseComparison compare_fsdp2_cases(const std::string& folder, const std::string& programs_file) {
  const json programs = json::parse(read_text_or_gzip(programs_file));
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().ends_with(".json.gz")) {
      paths.insert(entry.path().string());
    }
  }
  CaseComparison result;
  for (const std::string& path : paths) {
    ++result.cases;
    std::string text;
    try {
      const json file = json::parse(read_text_or_gzip(path));
      text = difference(file, programs.value(file.at("case").get<std::string>(), json::object()));
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (!text.empty()) {
      result.differences.push_back(std::filesystem::path(path).filename().string() + ": " + text);
    }
  }
  return result;
}

}  // namespace stepsim::test
