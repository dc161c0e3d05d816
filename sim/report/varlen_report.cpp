#include "sim/report/varlen_report.h"

#include <fmt/core.h>

#include "costmodel/terminal/table.h"
#include "sim/report/number_text.h"

namespace stepsim {

std::string varlen_text(const std::vector<NamedVarlenUse>& uses, const Screen& screen) {
  if (uses.empty()) {
    return "";
  }
  Table table({"policy",
               "max_num_docs",
               "most documents",
               "batches",
               "merged",
               "documents in them",
               "cross-document tokens",
               "discarded",
               "lost documents",
               "lost tokens",
               "cut documents",
               "cut tokens",
               "empty blocks"});
  for (const auto& [policy, use] : uses) {
    table.add({policy,
               use.max_num_docs > 0 ? std::to_string(use.max_num_docs) : "as held",
               std::to_string(use.most_documents),
               std::to_string(use.batches),
               std::to_string(use.merged_batches),
               std::to_string(use.merged_documents),
               std::to_string(use.cross_document_tokens),
               use.trailing_batches > 0
                   ? fmt::format("{} + {} last", use.discarded_batches, use.trailing_batches)
                   : std::to_string(use.discarded_batches),
               std::to_string(use.lost_documents),
               std::to_string(use.lost_tokens),
               std::to_string(use.cut_documents),
               std::to_string(use.cut_tokens),
               percent(use.blocks > 0 ? use.empty_blocks / use.blocks : 0)});
  }
  return "varlen attention over one epoch (most documents: of a batch, as the policy makes them; "
         "empty blocks: of the grid, mean)\n\n" +
         table.text(screen);
}

}  // namespace stepsim
