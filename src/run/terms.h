// What the ranks of a run must have in common: options, data and the program. Under MPI every rank is a
// process that reads its own command line and its own files, and ranks that differ would train something that
// nobody asked for, or wait for each other.
//
// The rule for options: two ranks must have the same value, unless the option says only where on its host a
// rank finds or leaves something, or how it uses that host (Option::local). The files behind such paths are
// compared by their content.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/fields/option.h"
#include "text/data_fingerprint.h"

namespace trifold {

// One thing that must be the same on all ranks.
struct Term {
  std::string name;        // "--lr"; the same on all ranks
  std::string value;       // what is compared
  std::string shown = {};  // what messages show instead, where it is not empty
};

class RunTerms {
 public:
  // Begins with the program's version and build.
  RunTerms();
  // The options of a table that ranks may not differ in.
  void add(const OptionTable& table);
  // The data behind `option`, a part a term.
  void add(const std::string& option, const DataFingerprint& data);
  // The files of --data-path and the tokenizer's, which `files` is of, and their shares in a blend.
  void add(const DataConfig& data, const DataFingerprint& files);
  // The content of the file that `option` names.
  void add_file(const std::string& option, const std::string& path);
  // The checkpoint at (or the newest one under) `path`, which can be read.
  void add_checkpoint(const std::string& path);
  void add(Term term) { terms_.push_back(std::move(term)); }

  std::span<const Term> terms() const { return terms_; }

 private:
  std::vector<Term> terms_;
};

// Collective. Where ranks differ, all of them throw the same SharedError, BadInput, which lists each
// difference by rank:
// "--lr is 0.001 on ranks 0-6 and 0.002 on rank 7". Costs one small message to each rank where they agree.
void agree_on(Communicator& world, const RunTerms& mine);

}  // namespace trifold
