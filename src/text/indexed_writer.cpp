#include "text/indexed_writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "text/indexed_format.h"

namespace trifold {

namespace {

template <class T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof(T));
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    fail("{} cannot be renamed to {}: {}", from, to, std::strerror(errno));
}

}  // namespace

IndexedWriter::IndexedWriter(const std::string& prefix, TokenType type) : prefix_(prefix), type_(type) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    bad_input("{}: the folder {} does not exist", prefix, folder.string());
  try {
    scratch_ = std::make_unique<ScratchFolder>(prefix);
  } catch (const Error& error) {
    bad_input("{}", error.what());
  }
  data_name_ = scratch_->file("bin").string();
  index_name_ = scratch_->file("idx").string();
  data_.open(data_name_, std::ios::binary | std::ios::trunc);
  if (!data_) bad_input("{} cannot be written: {}", data_name_, std::strerror(errno));
}

void IndexedWriter::add(std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  check(open_ + count <= std::numeric_limits<int32_t>::max(), "{}: a sequence holds at most {} tokens",
        prefix_, std::numeric_limits<int32_t>::max());
  const auto width = static_cast<size_t>(size_of(type_));
  bytes_.resize(tokens.size() * width);
  for (size_t i = 0; i < tokens.size(); ++i) {
    check(tokens[i] >= 0 && tokens[i] <= max_token(type_), "{}: token id {} does not fit the token type {}",
          prefix_, tokens[i], name_of(type_));
    const int64_t value = tokens[i];  // little-endian: the low bytes come first
    std::memcpy(bytes_.data() + i * width, &value, width);
  }
  data_.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  check(data_.good(), "{}: writing failed: {}", data_name_, std::strerror(errno));
  open_ += count;
  tokens_ += count;
}

void IndexedWriter::end_sequence() {
  lengths_.push_back(static_cast<int32_t>(open_));
  open_ = 0;
}

void IndexedWriter::end_document() {
  check(open_ == 0, "{}: the document ends inside a sequence", prefix_);
  document_indices_.push_back(sequences());
}

void IndexedWriter::write_index() {
  std::ofstream out(index_name_, std::ios::binary | std::ios::trunc);
  out.write(kIndexMagic.data(), kIndexMagic.size());
  put(out, kIndexVersion);
  put(out, static_cast<uint8_t>(type_));
  put(out, static_cast<uint64_t>(lengths_.size()));
  put(out, static_cast<uint64_t>(document_indices_.size()));
  for (int32_t length : lengths_) put(out, length);
  int64_t pointer = 0;
  for (int32_t length : lengths_) {
    put(out, pointer);
    pointer += length * size_of(type_);
  }
  for (int64_t index : document_indices_) put(out, index);
  out.close();
  check(!out.fail(), "{}: writing failed: {}", index_name_, std::strerror(errno));
}

void IndexedWriter::finish() {
  check(open_ == 0 && document_indices_.back() == sequences(), "{}: finished inside a document", prefix_);
  data_.close();
  check(!data_.fail(), "{}: writing failed: {}", data_name_, std::strerror(errno));
  write_index();
  // An old index must never be combined with new data: it is removed first, and the new one is renamed last.
  ScratchFolder::protect([&] {
    std::error_code ignored;
    std::filesystem::remove(prefix_ + ".idx", ignored);
    rename_file(data_name_, prefix_ + ".bin");
    rename_file(index_name_, prefix_ + ".idx");
  });
  scratch_.reset();
}

}  // namespace trifold
