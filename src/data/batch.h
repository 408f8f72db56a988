// Batch holds the tokens of one micro-batch. DataSource reads batches.
//
// The training order is a pure function of the seed, and the position in it is one integer, the number of samples
// consumed so far; so the global batch does not depend on the mesh, and resume needs nothing else.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/sequence_rows.h"
#include "core/tensor.h"

namespace trifold {

// Base of additional data of a batch that only the blocks of one kind of model read.
struct BatchPart {};

// Scalars that a model's blocks read with each micro-batch, indexed by BatchValueId (nn/reports.h); 1 if the trainer
// sets none.
constexpr int kMostBatchValues = 4;
using BatchValues = std::array<double, kMostBatchValues>;
constexpr BatchValues kUnitValues = {1, 1, 1, 1};

// The largest number of labels of a position after its label.
constexpr int kMostLaterLabels = 4;

// All tensors are views. For models that predict the next token `tokens[b, t + 1]` is `labels[b, t]`; for BERT the
// labels are the tokens before some were masked, and the fields of pairs are filled in too (tasks/bert_samples.h).
struct Batch {
  Tensor tokens;       // i32 [b, T]
  Tensor labels;       // i32 [b, T]
  Tensor positions;    // i32 [b, T], 0 .. T-1 in each sample, or in each document
  Tensor loss_weight;  // f32 [b, T], 1 if the label counts, else 0

  // The position in the sample at which the document of each token begins; attention does not look beyond it. Without
  // memory if documents may attend to each other (DataSource::separates_documents). Covers all positions, even if
  // `rows` are only some.
  Tensor document_begin;  // i32 [b, positions]

  // The k-th labels after `labels`, and their loss weights (data/later_labels.h): later_labels[k - 1][b, t] is the label
  // of position t + k of the sample. Only the first DataSource::later_labels() of each have dims.
  std::array<Tensor, kMostLaterLabels> later_labels;   // i32 [b, T]
  std::array<Tensor, kMostLaterLabels> later_weights;  // f32 [b, T]

  // Marks tokens that the data do not have. They get no loss, and no statistic of a model counts them, unlike tokens
  // with a loss weight of 0, which are part of the text. Without memory if there are none.
  Tensor padding;  // i32 [b, T], 1 in samples that fill up the batch (read_padded), otherwise 0

  // Pairs of sentences; only sources of pairs set them and only models of pairs read them.
  Tensor token_types;  // i32 [b, T], 0 in the first sentence, 1 in the second
  Tensor lengths;      // i32 [b], tokens before the padding, at least 1
  Tensor pair_labels;  // i32 [b], 1 if the second sentence does not follow the first; or a class
  Tensor pair_weight;  // f32 [b], 1; 0 for a sample that is padding
  // A number that the source gives each sample, for losses of whole samples (nn/samples/sample_loss.h); 0 unless the source sets
  // it.
  Tensor sample_values;  // f64 [b]
  // For questions with an answer in the sample (tasks/task_samples.h).
  Tensor answer_begin, answer_end;  // i32 [b], its first and last token

  // The arrays of a model from a file, whose layout the model knows (graph/array_layout.h). For such models a sample is
  // one token. Without memory for all others. They belong to all samples together, so such a batch cannot be padded,
  // and has no part with fewer samples.
  Tensor arrays;  // u8 [n], aligned to 64 bytes
  BatchValues values = kUnitValues;

  // The positions of each sample in this batch: T of them, all unless context parallelism cuts samples (cut_rows).
  // Empty: all.
  SequenceRows rows;

  int64_t first_sample = 0;  // global index of sample 0; sample b has index first_sample + b

  const BatchPart* part = nullptr;  // data for one kind of model, if it needs some; not owned

  // Only on a device: kernels read these at run time instead of the host values above, which would be fixed arguments
  // of their launches (pipeline/device_batches.h).
  Tensor sample;        // i64 [1], first_sample
  Tensor loss_factors;  // f64 [1 + 2 kMostBatchValues]: Run::loss_scale, that times `values`, `values`

  int64_t samples() const { return tokens.dim(0); }
  int64_t seq_length() const { return tokens.dim(1); }  // T: the positions in this batch
  SequenceRows held_rows() const { return rows.rows() > 0 ? rows : SequenceRows(seq_length()); }
  // All tensors, in this order: the one with the widest elements first, so that all are aligned one after the other.
  std::array<Tensor*, 14 + 2 * kMostLaterLabels> tensors() {
    static_assert(kMostLaterLabels == 4);
    return {&sample_values,    &document_begin,
            &tokens,           &labels,
            &positions,        &loss_weight,
            &later_labels[0],  &later_labels[1],
            &later_labels[2],  &later_labels[3],
            &later_weights[0], &later_weights[1],
            &later_weights[2], &later_weights[3],
            &padding,          &token_types,
            &lengths,          &pair_labels,
            &pair_weight,      &answer_begin,
            &answer_end,       &arrays};
  }
};

// A batch whose tensors have shapes but no memory. It has no document_begin and no arrays.
Batch batch_without_memory(int64_t samples, int64_t seq_length, int later_labels = 0);

class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t seq_length() const = 0;
  // The number of samples; reading beyond it is an Error.
  virtual int64_t samples() const = 0;
  // Whether samples are cut into documents that do not attend to each other; then `read` fills document_begin.
  virtual bool separates_documents() const { return false; }
  // How many of Batch::later_labels `read` fills.
  virtual int later_labels() const { return 0; }
  // The bytes of Batch::arrays that `read` fills for a batch of this many samples.
  virtual int64_t array_bytes(int64_t /*samples*/) const { return 0; }
  // Fills the tensors of `batch` with samples [first_sample, first_sample + b). A pure function,
  // callable from several threads at a time.
  virtual void read(Batch& batch, int64_t first_sample) const = 0;
  // Starts slow preparations for reading sample `first_sample` and waits for them for about `patience`. Returns whether
  // `read` will now return at once, possibly with an error. Callable from several threads at a time.
  virtual bool make_ready(int64_t /*first_sample*/, std::chrono::milliseconds /*patience*/) const {
    return true;
  }
  // The names of the sources from which samples are taken in changing shares; empty: they are not distinguished.
  virtual std::vector<std::string> sources() const { return {}; }
  // Writes how many of the first `samples` samples come from each of them; [sources().size()]. Allocates nothing.
  virtual void count_sources(int64_t /*samples*/, std::span<int64_t> /*counts*/) const {}
  // A bookmark that a checkpoint keeps so that a run resuming at `sample` finds it quickly (empty if none is needed),
  // and the call that restores it. It only saves time; the samples are the same without it. BadInput if the bookmark
  // belongs to other data.
  virtual std::string bookmark(int64_t /*sample*/) const { return {}; }
  virtual void open_at(const std::string& /*bookmark*/) const {}
};

// The first `count` samples of a batch, as views. Failure if the batch has arrays.
Batch first_samples(const Batch& whole, int64_t count);

// Keeps only these positions of each sample, for context parallelism. Works in place on a batch with all positions; the
// rest of its tensors' memory is unused afterwards. Labels come from the source, so they are right even if the next
// position belongs to another rank; document_begin stays complete. Does nothing if `rows` are all positions.
void cut_rows(Batch& batch, const SequenceRows& rows);

// Fills `batch` with samples [first_sample, first_sample + b). Samples from `end` on do not exist and become padding
// (Batch::padding): token 0 throughout with a loss weight of 0; the source does not read them. BadInput if a batch with
// arrays would need padding.
void read_padded(const DataSource& source, Batch& batch, int64_t first_sample, int64_t end);

}  // namespace trifold
