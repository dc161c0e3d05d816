// The lines of a samples file: how they are written. Numbers are cut to what the clock can tell,
// which keeps the file small.
#include <iterator>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/samples/sample_log.h"
#include "costmodel/base/input_error.h"
#include "costmodel/io/json_lines.h"

namespace stepsim {
namespace {

void append_us(const std::vector<double>& seconds, std::string* text) {
  text->push_back('[');
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    fmt::format_to(std::back_inserter(*text), "{}{:.2f}", i > 0 ? "," : "", seconds[i] * 1e6);
  }
  text->push_back(']');
}

std::string imported_line(const ImportedSize& size, const ImportedTime& time) {
  const auto& [op, ranks, nodes, bytes] = size;
  std::string text =
      fmt::format(R"({{"kind":"collective","op":"{}","ranks":{},"nodes":{},"bytes":{})",
                  op,
                  ranks,
                  nodes,
                  bytes);
  if (time.out_of_place_us) {
    text += fmt::format(R"(,"out_of_place_us":{})", json_number(*time.out_of_place_us));
  }
  if (time.in_place_us) {
    text += fmt::format(R"(,"in_place_us":{})", json_number(*time.in_place_us));
  }
  return text + "}";
}

}  // namespace

std::string op_key(const Op& op) {
  return fmt::format("{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}",
                     name_of(op.op_class),
                     name_of(op.pass),
                     name_of(op.rows),
                     op.n,
                     op.k,
                     op.heads,
                     op.kv_heads,
                     op.head_dim,
                     op.causal ? 1 : 0,
                     name_of(op.dtype),
                     op.varlen ? 1 : 0,
                     op.window,
                     op.each,
                     op.keys,
                     op.matrices);
}

StepOpKinds distinct_ops(const std::vector<Op>& step) {
  StepOpKinds kinds;
  std::map<std::string, std::size_t> index;
  for (const Op& op : step) {
    const auto [place, is_new] = index.emplace(op_key(op), kinds.ops.size());
    if (is_new) {
      kinds.ops.push_back(op);
      kinds.ops.back().name.clear();
      kinds.ops.back().completes.clear();
      kinds.counts.push_back(0);
    }
    ++kinds.counts[place->second];
    kinds.kind_of.push_back(place->second);
  }
  return kinds;
}

Json pass_json(int pass, const StepOpKinds& kinds) {
  Json ops = Json::array();
  for (std::size_t i = 0; i < kinds.ops.size(); ++i) {
    const Op& op = kinds.ops[i];
    ops.push_back({{"op", name_of(op.op_class)},
                   {"pass", name_of(op.pass)},
                   {"rows", name_of(op.rows)},
                   {"n", op.n},
                   {"k", op.k},
                   {"heads", op.heads},
                   {"kv_heads", op.kv_heads},
                   {"head_dim", op.head_dim},
                   {"causal", op.causal},
                   {"varlen", op.varlen},
                   {"window", op.window},
                   {"dtype", name_of(op.dtype)},
                   {"count", kinds.counts[i]}});
    if (op.each != 1) {
      ops.back()["each"] = op.each;
    }
    if (op.keys != 0) {
      ops.back()["keys"] = op.keys;
    }
    if (op.matrices != 1) {
      ops.back()["matrices"] = op.matrices;
    }
  }
  return {{"kind", "pass"}, {"pass", pass}, {"ops", std::move(ops)}};
}

std::string step_line(int pass,
                      int rank,
                      double at_seconds,
                      const BatchShape& batch,
                      const std::vector<std::vector<double>>& op_seconds) {
  std::string text = fmt::format(
      R"({{"kind":"step","pass":{},"rank":{},"at_seconds":{:.3f},"samples":{},"max_length":{},)"
      R"("useful_tokens":{},"sum_squares":{:.0f},"op_us":[)",
      pass,
      rank,
      at_seconds,
      batch.samples,
      batch.max_length,
      batch.useful_tokens,
      batch.sum_squares);
  for (std::size_t i = 0; i < op_seconds.size(); ++i) {
    text += i > 0 ? "," : "";
    append_us(op_seconds[i], &text);
  }
  return text + "]}";
}

std::string collective_line(int pass,
                            int ranks,
                            int nodes,
                            const CollectiveTask& task,
                            const std::vector<double>& seconds) {
  std::string text =
      fmt::format(R"({{"kind":"collective","pass":{},"op":"{}","ranks":{},"nodes":{},"bytes":{},)"
                  R"("pipelined":{},"us":)",
                  pass,
                  name_of(task.kind),
                  ranks,
                  nodes,
                  task.bytes,
                  task.pipelined);
  append_us(seconds, &text);
  return text + "}";
}

std::vector<std::string> import_lines(const ImportedCollective& import) {
  std::vector<std::string> lines = {
      import.about->dump(-1, ' ', false, Json::error_handler_t::replace)};
  for (const auto& [size, time] : import.times) {
    lines.push_back(imported_line(size, time));
  }
  return lines;
}

std::string overlap_line(int pass, const OverlapSample& sample) {
  std::string text =
      fmt::format(R"({{"kind":"overlap","pass":{},"channels":{},"collective_bytes":{},)"
                  R"("collective_alone_us":{:.3f})",
                  pass,
                  sample.channels,
                  sample.collective_bytes,
                  sample.collective_alone * 1e6);
  if (sample.collective_beside > 0) {
    text += fmt::format(R"(,"collective_beside_us":{:.3f})", sample.collective_beside * 1e6);
  }
  text += fmt::format(R"(,"compute":"{}")", sample.compute);
  if (sample.compute_blocks > 0) {
    text += fmt::format(R"(,"compute_blocks":{})", sample.compute_blocks);
  }
  return text + fmt::format(R"(,"compute_alone_us":{:.3f},"compute_beside_us":{:.3f}}})",
                            sample.compute_alone * 1e6,
                            sample.compute_beside * 1e6);
}

std::string refused_line(int pass, const RefusedPoint& refused) {
  const Json line = {{"kind", "refused"},
                     {"pass", pass},
                     {"samples", refused.point.samples},
                     {"max_length", refused.point.length},
                     {"why", printable(refused.why, 400)}};
  return line.dump();
}

std::string sentinel_line(int pass, int rank, double at_seconds, double seconds) {
  return fmt::format(
      R"({{"kind":"sentinel","pass":{},"rank":{},"at_seconds":{:.3f},"step_us":{:.2f}}})",
      pass,
      rank,
      at_seconds,
      seconds * 1e6);
}

std::string pass_end_line(int pass, double at_seconds) {
  return fmt::format(R"({{"kind":"pass_end","pass":{},"at_seconds":{:.3f}}})", pass, at_seconds);
}

}  // namespace stepsim
