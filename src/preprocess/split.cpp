#include "preprocess/split.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "clicks/click_input.h"
#include "core/error.h"
#include "core/printable.h"
#include "preprocess/click_reader.h"
#include "preprocess/new_output.h"

namespace trifold {

namespace {

constexpr const char* kPartNames[] = {"train", "valid", "test"};

// The times of all rows that can be read, ascending.
std::vector<double> times_of(const PreprocessOptions& options, ThreadPool& pool) {
  std::vector<double> times;
  std::vector<ClickPiece> pieces(static_cast<size_t>(pool.size()));
  for (const std::string& path : click_inputs(options.inputs)) {
    const auto reader = open_click_reader(path, options, pool.size());
    while (reader->next(pieces, pool, {}))
      for (const ClickPiece& piece : pieces)
        times.insert(times.end(), piece.times.begin(), piece.times.end());
  }
  std::sort(times.begin(), times.end());
  return times;
}

// The first values of all parts but the first.
std::vector<double> cuts_of(const PreprocessOptions& options, const std::vector<double>& shares,
                            ThreadPool& pool) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<double> cuts;
  double before = 0;
  for (size_t p = 0; p + 1 < shares.size(); ++p) cuts.push_back((before += shares[p]) / all);
  if (options.split_by.empty()) return cuts;
  const std::vector<double> times = times_of(options, pool);
  if (times.empty()) return cuts;  // preprocess() says why
  for (double& cut : cuts)
    cut = times[std::min(static_cast<size_t>(std::llround(cut * static_cast<double>(times.size()))),
                         times.size() - 1)];
  const bool is_empty = cuts[0] == times[0] || std::adjacent_find(cuts.begin(), cuts.end()) != cuts.end();
  if (is_empty)
    bad_input(
        "--split-by {}: too many of the {} rows have the same time, and rows of one time are in one part, so a part "
        "would be empty: give other shares with --split",
        printable(options.split_by), times.size());
  return cuts;
}

}  // namespace

std::vector<SplitPart> split_parts(const PreprocessOptions& options, const std::vector<double>& shares,
                                   ThreadPool& pool) {
  check(shares.size() == 2 || shares.size() == 3, "{} parts", shares.size());
  std::vector<double> cuts = cuts_of(options, shares, pool);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  cuts.insert(cuts.begin(), -kInfinity);
  cuts.push_back(kInfinity);
  std::vector<SplitPart> parts;
  for (size_t p = 0; p < shares.size(); ++p) parts.push_back({kPartNames[p], {cuts[p], cuts[p + 1]}});
  return parts;
}

void preprocess_parts(const PreprocessOptions& options, std::vector<SplitPart>& parts, ThreadPool& pool,
                      FunctionRef<void(const PreprocessProgress&)> progress) {
  const std::unique_ptr<ScratchFolder> scratch = scratch_beside(options.output);
  constexpr const char* kParts = "parts";
  const std::filesystem::path unfinished = scratch->file(kParts);
  std::filesystem::create_directory(unfinished);
  const auto folder_of = [&](const SplitPart& part) { return (unfinished / part.name).string(); };
  for (SplitPart& part : parts) {
    PreprocessOptions own = options;
    own.output = folder_of(part);
    own.rows = part.rows;
    if (&part != &parts.front()) {
      own.dictionaries_of = folder_of(parts.front());
      own.as_there = true;  // which takes over these options
      own.hash_ids = own.keep_keys = false;
      own.max_ind_range = 0;
      own.grow_dictionaries = false;
      own.shared.clear();
      own.frequency_threshold = 1;
      own.drop_negatives = 0;
    }
    part.result = preprocess(own, pool, progress);
  }
  scratch->move_out(kParts, options.output);
}

}  // namespace trifold
