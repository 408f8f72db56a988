// The terms on which all ranks of a run must agree: options, data and the program. Under MPI every rank is a process
// with its own command line and files; ranks that differ would train something unintended, or deadlock.
//
// The rule for options: all ranks must have the same value, unless the option only concerns paths on a rank's host or
// how it uses that host (Option::local). The files at such paths are compared by content. Some of these options must be
// given on all ranks or on none (Option::common).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/options/option.h"
#include "text/data_fingerprint.h"

namespace trifold {

// One value that must be the same on all ranks.
struct Term {
  std::string name;        // "--lr"; the same on all ranks
  std::string value;       // the compared value
  std::string shown = {};  // shown in messages instead, if not empty
};

class RunTerms {
 public:
  // Begins with the program's version and build.
  RunTerms();
  // Adds the options of a table in which ranks may not differ.
  void add(const OptionTable& table);
  // Adds the data of `option`, one term per part.
  void add(const std::string& option, const DataFingerprint& data);
  // Adds the files of --data-path and the tokenizer, with the fingerprint `files`, and their shares in a blend.
  void add(const DataConfig& data, const DataFingerprint& files);
  // Adds the content of the file that `option` names.
  void add_file(const std::string& option, const std::string& path);
  // Adds the checkpoint at (or the newest one under) `path`, which must be readable.
  void add_checkpoint(const std::string& path);
  void add(Term term) { terms_.push_back(std::move(term)); }

  std::span<const Term> terms() const { return terms_; }

 private:
  std::vector<Term> terms_;
};

// Collective. If ranks differ, all throw the same SharedError, BadInput, which lists each difference by rank: "--lr is
// 0.001 on ranks 0-6 and 0.002 on rank 7". If they agree it costs one small message per rank.
void agree_on(Communicator& world, const RunTerms& mine);

}  // namespace trifold
