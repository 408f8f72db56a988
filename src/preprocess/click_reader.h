// ClickReader reads one input of preprocessing, of any format, as pieces of samples (preprocess/parse_clicks.h),
// several at a time:
//
//   text    a text file (clicks/click_input.h)
//   parquet Parquet files (preprocess/parquet_file.h), whose names end in .parquet
//   arrays  NumPy arrays as TorchRec's tools write them: <name>_labels.npy [n] or [n, 1], <name>_dense.npy [n, d] and
//           <name>_sparse.npy [n, tables], or <name>_sparse_multi_hot.npz with 0.npy [n, ids of a bag] ... The labels
//           file stands for all three. Or an .npz file as dlrm's tools write it: y, X_int and X_cat of these shapes.
//   norm    HugeCTR's Norm files: binary files whose names end in .data (norm_reader.cpp)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "clicks/click_text.h"
#include "core/thread_pool.h"
#include "preprocess/parse_clicks.h"

namespace trifold {

class ClickReader {
 public:
  virtual ~ClickReader() = default;
  // The columns of the input.
  virtual const TextLayout& layout() const = 0;
  // Size of the input on disk, in bytes.
  virtual int64_t size() const = 0;
  // Number of the first line or sample, for messages.
  virtual int64_t first_line() const = 0;
  // Fills the pieces, one per worker of the pool, with the next samples; false at the end. BadInput for damaged input.
  virtual bool next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) = 0;
  // Approximate fraction of the input that next() has read, from 0 to 1.
  virtual double share() const = 0;
};

// Opens an input. BadInput for a file that is missing or does not hold clicks. `options` must outlive the reader;
// `threads` is the size of the pools passed to next().
std::unique_ptr<ClickReader> open_click_reader(const std::string& path, const PreprocessOptions& options,
                                               int threads);
// Applies options to the layout of a file with names of columns: adds the roles of --keep and --split-by, and whether
// labels are needed.
void apply_options(TextLayout& layout, const PreprocessOptions& options, const std::string& path);
// BadInput about --keep and --split-by for an input whose columns have no names.
void refuse_names(const PreprocessOptions& options, const std::string& path);
// Whether `path` names a Parquet file.
bool is_parquet_input(const std::string& path);
// Opens Parquet files. Failure if the Parquet module is missing.
std::unique_ptr<ClickReader> open_parquet_reader(const std::string& path, const PreprocessOptions& options,
                                                 int threads);
// Whether `path` is the labels file of arrays, or an .npz file.
bool is_array_input(const std::string& path);
// Whether some record of a Norm file (is_norm_file of clicks/click_input.h) has a slot that does not hold exactly one
// key. Reads the file up to such a record. BadInput for a damaged file.
bool has_norm_bags(const std::string& path);
std::unique_ptr<ClickReader> open_norm_reader(const std::string& path, const PreprocessOptions& options);
std::unique_ptr<ClickReader> open_array_reader(const std::string& path, const PreprocessOptions& options);

}  // namespace trifold
