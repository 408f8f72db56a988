// Samples: an indexed list of pieces of text, each with seq_length tokens and the label of the last. The sources of
// data/batch.h are built on it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "text/blend.h"

namespace trifold {

class Samples {
 public:
  virtual ~Samples() = default;
  virtual int64_t count() const = 0;
  // Copies the seq_length + 1 tokens of sample `index`, in [0, count()), to `out`. A pure function, callable
  // from several threads at a time. BadInput for a token outside the vocabulary.
  virtual void read(int64_t index, std::span<int32_t> out) const = 0;
  // As the functions of DataSource.
  virtual bool make_ready(int64_t /*index*/, std::chrono::milliseconds /*patience*/) const { return true; }
  virtual std::string bookmark(int64_t /*index*/) const { return {}; }
  virtual void open_at(const std::string& /*bookmark*/) const {}
  virtual std::vector<std::string> sources() const { return {}; }
  virtual void count_sources(int64_t /*samples*/, std::span<int64_t> /*counts*/) const {}
};

// Several lists, mixed according to a blend (text/blend.h).
class BlendedSamples : public Samples {
 public:
  // Failure if the blend requests more samples of a list than it has. `names`: of the lists, if samples are counted
  // by list (DataSource::sources).
  BlendedSamples(std::vector<std::unique_ptr<Samples>> parts, BlendOrder order,
                 std::vector<std::string> names = {});

  int64_t count() const override { return order_.samples(); }
  void read(int64_t index, std::span<int32_t> out) const override;
  bool make_ready(int64_t index, std::chrono::milliseconds patience) const override;
  std::string bookmark(int64_t index) const override;  // one bookmark for each list
  void open_at(const std::string& bookmark) const override;
  std::vector<std::string> sources() const override { return names_; }
  void count_sources(int64_t samples, std::span<int64_t> counts) const override;

 private:
  std::vector<std::unique_ptr<Samples>> parts_;
  BlendOrder order_;
  std::vector<std::string> names_;
};

// The treatment of documents within a sample, with Megatron-LM's options. A document ends with the token `end`; the
// next token of the sample, the label of `end`, begins another document.
struct DocumentRules {
  std::optional<int32_t> end;       // absent: the other fields are unset
  bool mask_loss = false;           // the label of an `end` does not count: it belongs to another document
  bool restart_positions = false;   // positions count from 0 in each document
  bool separate_attention = false;  // attention does not cross documents
};

// The DataSource of a list of samples: labels are the tokens shifted by one, positions count from 0 in each sample and
// every label counts, unless the document rules change that.
class SampleSource : public DataSource {
 public:
  SampleSource(std::unique_ptr<Samples> samples, int64_t seq_length, const DocumentRules& documents = {});

  int64_t seq_length() const override { return seq_length_; }
  int64_t samples() const override { return samples_->count(); }
  bool separates_documents() const override { return documents_.separate_attention; }
  void read(Batch& batch, int64_t first_sample) const override;
  bool make_ready(int64_t first_sample, std::chrono::milliseconds patience) const override {
    return samples_->make_ready(first_sample, patience);
  }
  std::string bookmark(int64_t sample) const override { return samples_->bookmark(sample); }
  void open_at(const std::string& bookmark) const override { samples_->open_at(bookmark); }
  std::vector<std::string> sources() const override { return samples_->sources(); }
  void count_sources(int64_t samples, std::span<int64_t> counts) const override {
    samples_->count_sources(samples, counts);
  }

 private:
  void read_documents(Batch& batch, int64_t sample) const;

  std::unique_ptr<Samples> samples_;
  int64_t seq_length_;
  DocumentRules documents_;
};

}  // namespace trifold
