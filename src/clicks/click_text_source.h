// TextClicks reads samples directly from text: Criteo's TSV, or a CSV file with a header (clicks/click_text.h).
//
// The file is mapped, and scanned once when it is opened, to index its lines and find malformed ones; the index takes 4
// bytes per sample. A line is parsed each time its sample is read. Preprocessing (preprocess/preprocess.h) makes data
// sets that are smaller, faster to read, and have ids without collisions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clicks/click_columns.h"
#include "clicks/click_source.h"
#include "clicks/click_text.h"
#include "files/mapped_file.h"

namespace trifold {

struct TextOptions {
  std::string format = "auto";  // as for find_layout
  bool needs_labels = true;     // false: the file may have none
  double max_malformed = kMaxMalformed;
  Unlabelled unlabelled = Unlabelled::Malformed;
  std::vector<std::string> keep = {};  // columns whose texts are kept with the samples
};

class TextClicks final : public ClickSource {
 public:
  // `rows`: of each table, or one number for all. Hashes are taken modulo the rows unless another policy is given.
  // Malformed lines are skipped and listed by report(). BadInput if the file has no labels although they are needed,
  // no valid line, a larger share of malformed ones than allowed, or another number of tables.
  TextClicks(const std::string& path, std::vector<int64_t> rows, const ClickRules& rules,
             const TextOptions& options = {});

  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return samples_; }
  void fill(std::span<const int64_t> positions, ClickPart& out) const override;

  std::vector<int64_t> unlabelled() const override { return unlabelled_; }
  std::vector<std::string> kept_columns() const override { return options_.keep; }
  std::string kept(int64_t sample, int column) const override;

  const TextReport& report() const { return report_; }

 private:
  void index_lines();
  bool is_sample(const ClickRow& row);
  std::string_view line_of(int64_t sample) const;
  int64_t line_number(int64_t sample) const;  // counted from 1; walks the file

  MappedFile file_;
  TextOptions options_;
  TextLayout layout_;
  ClickSchema schema_;
  ClickRules rules_;
  TextReport report_;
  int64_t samples_ = 0;
  std::vector<int64_t> groups_;  // offset of each group of kGroup samples
  std::vector<int64_t> unlabelled_;
  std::vector<uint32_t> starts_;  // offset of each sample from its group
};

}  // namespace trifold
