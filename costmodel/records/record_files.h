#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/model/transformer.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// A run record and where it came from.
struct RecordFile {
  std::string file;  ///< The path; of joined ranks that of the first rank's file.
  RunRecord record;
};

/// Reads run records. Files of single ranks (`run.rank0.jsonl`, `run.rank1.jsonl`, as
/// stepsim_recorder.py writes them) become one record with the steps that all ranks finished; other
/// steps are left out with a warning. They are passed over where the record that the recorder made
/// of them (`run.jsonl`) is given as well. Ranks of several hosts get one clock
/// (align_rank_clocks()), with a warning.
///
/// Raises InputError: what read_run_record() raises; a rank's file is missing; the files of one run
/// disagree on policy, model or number of ranks, or started hours apart; no step has all ranks.
[[nodiscard]] std::vector<RecordFile> read_record_files(std::span<const std::string> paths,
                                                        std::vector<std::string>* warnings);

/// Raises InputError that names the file and the model when no step's buckets can hold the
/// gradients of this model: a step reduces all of them, in whole bytes each, once or once a
/// micro-batch. Records without bucket times pass, and models with sparse gradients.
void check_gradients(const RecordFile& file, const TransformerConfig& model);

}  // namespace stepsim
