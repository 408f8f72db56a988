// Corpus is the data of --data-path, opened and checked; it creates the data sources.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/fields/config.h"
#include "data/batch.h"
#include "text/bad_records.h"
#include "text/blend.h"
#include "text/blend/data_schedule.h"
#include "text/indexed_dataset.h"
#include "text/split.h"
#include "text/stream_files.h"
#include "text/text_samples.h"
#include "text/token_blocks.h"
#include "text/training_text.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// The tokenizer that `config` names or implies: text without --tokenizer-type is read as bytes. Null if all paths are
// .bin/.idx prefixes.
std::unique_ptr<Tokenizer> open_tokenizer(const DataConfig& config);

class Corpus final : public TrainingText {
 public:
  // Opens every path of `config`: a prefix of .bin/.idx files if one of those exists, else text. Text is streamed
  // (text/stream_samples.h) from folders, JSON lines, packed files and files larger than kWholeText; paths without
  // weights that are all streamed form one corpus. A smaller plain text file is read whole (text/text_samples.h). Token
  // ids must be in [0, vocab_size): checked here, except for .bin files larger than kScanLimit, whose tokens are
  // checked as they are read. BadInput for every mistake in the files and options.
  Corpus(const DataConfig& config, int64_t vocab_size);

  static constexpr int64_t kScanLimit = int64_t{1} << 30;  // bytes of the largest .bin checked here
  static constexpr int64_t kWholeText = int64_t{1} << 26;  // bytes of the largest text read whole

  // Whether the split has a share above 0.
  bool has(Split split) const override { return !split_.empty(split); }
  // Whether some of the data are streamed; the number of samples is then unknown.
  bool streams() const override;
  // Tokens in one split, over all paths. Failure for a corpus that is streamed.
  int64_t tokens(Split split) const;

  // The samples of one split in training order, at least `samples_needed` (split.h has Megatron-LM's rule); a smaller
  // split is repeated in epochs. The source shares the open files with the corpus and may outlive it; several ranks may
  // share one source. BadInput if the split is too small for one sample.
  //
  // Blends follow Megatron-LM. With weights, each path contributes its share of the samples. Without weights, every
  // sample of every path is drawn once, interleaved in proportion to the paths' sizes; if that is less than
  // `samples_needed` (where Megatron-LM stops), the proportions serve as weights and the paths are repeated. With
  // --data-schedule the training split follows the schedule, and other splits have the weights of its last point.
  std::unique_ptr<DataSource> source(Split split, int64_t seq_length, int64_t samples_needed,
                                     uint64_t seed) const override;

  // `passes` passes over one split, each with every sample of every path exactly once (text/passes.h). A text file is
  // cut at the same positions in every pass; tokens at the end of a path that do not fill a sample are left out.
  // BadInput if the paths have weights, because shares of samples are not passes, or for several passes over a streamed
  // corpus. One pass over such a corpus has at most `most` samples (text/stream_pass.h).
  std::unique_ptr<DataSource> passes(Split split, int64_t seq_length, int64_t passes, uint64_t seed,
                                     int64_t most = std::numeric_limits<int64_t>::max()) const override;
  bool weighted() const override { return paths_.weights || schedule_; }
  // The records that the sources skip.
  std::shared_ptr<BadRecords> bad_records() const override { return bad_; }
  // The files of streams, and a warning if documents follow each other without an end token.
  DataNotes notes() const override;

 private:
  using File = std::variant<std::shared_ptr<const IndexedDataset>, std::shared_ptr<const TextTokens>,
                            std::shared_ptr<const StreamFiles>>;

  // BadInput if --data-schedule does not suit the paths.
  void open_schedule(const DataConfig& config);
  void open_paths();
  // BadInput if an option needs the ends of documents and the tokenizer has no token for them.
  void find_documents(const DataConfig& config);
  // Whether no document of a data set with several ends with the end token; in a large data set only the beginning is
  // searched.
  bool lacks_ends(const IndexedDataset& dataset) const;
  // BadInput if an option needs the ends of documents and a data set has none.
  void check_ends(const DataConfig& config) const;
  // BadInput if --json-key or --on-bad-record has no effect.
  void check_json_options() const;
  StreamOptions stream_options(std::shared_ptr<const StreamFiles> files, Split split, int64_t seq_length,
                               uint64_t seed) const;

  // One path's samples. `samples_needed` absent: one epoch. `fixed_cut` as in TextSamples.
  std::unique_ptr<Samples> samples_of(const File& file, Split split, int64_t seq_length,
                                      std::optional<int64_t> samples_needed, uint64_t seed,
                                      bool fixed_cut = false) const;
  void check_part(Split split) const;
  std::unique_ptr<Samples> blend(Split split, int64_t seq_length, int64_t samples_needed,
                                 uint64_t seed) const;
  std::unique_ptr<Samples> by_weight(Split split, int64_t seq_length, int64_t samples_needed, uint64_t seed,
                                     const std::vector<double>& weights) const;
  std::unique_ptr<Samples> by_schedule(int64_t seq_length, int64_t samples_needed, uint64_t seed) const;

  DataPaths paths_;
  std::optional<DataSchedule> schedule_;
  SplitFractions split_;
  int64_t vocab_size_;
  std::string json_key_;
  std::shared_ptr<BadRecords> bad_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null if all paths are .bin/.idx prefixes
  std::vector<File> files_;
  DocumentRules documents_;
};

// Opens a corpus for a single source.
std::unique_ptr<DataSource> open_data(const DataConfig& config, Split split, int64_t seq_length,
                                      int64_t samples_needed, uint64_t seed, int64_t vocab_size);

}  // namespace trifold
