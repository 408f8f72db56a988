// FieldRules says how the fields of a data set are read, in any format of files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

// Values that stand for a missing value, in addition to an empty field. A listed number equals a label or dense value
// as a number (-1 is -1.0), and an id by its spelling (clicks/cells/cell.h).
class MissingValues {
 public:
  MissingValues() = default;
  explicit MissingValues(const std::vector<std::string>& texts);

  bool has_text(std::string_view text) const;
  bool has_number(double number) const;
  bool has_spelling(std::string_view text) const;

 private:
  std::vector<std::string> texts_, spellings_;
  std::vector<double> numbers_;
};

// Whether a sample must have labels. A missing label is stored as kNoLabel.
enum class LabelNeed {
  Required,    // a row without any label is malformed
  Optional,    // a label may be missing
  Irrelevant,  // a label may be missing, and an invalid one counts as missing
};

// The need that options imply. Irrelevant for samples that need no column of labels and are kept without a label: they
// are only scored.
LabelNeed label_need(bool needs_labels, Unlabelled unlabelled);

struct FieldRules {
  std::vector<LabelRule> labels{LabelRule{}};
  LabelNeed need = LabelNeed::Required;
  MissingValues missing;
  uint64_t hash_seed = 0;  // for hashes of ids
  // Ids are hashes of the texts as written, not of their spellings, as in data sets of older versions.
  bool as_written = false;
};

}  // namespace trifold
