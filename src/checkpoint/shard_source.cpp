#include "checkpoint/shard_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/piece_reader.h"

namespace trifold {

const TensorInfo* stored_tensor(const Manifest& manifest, const std::string& name) {
  const auto at =
      std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), name,
                       [](const TensorInfo& tensor, const std::string& key) { return tensor.name < key; });
  return at != manifest.tensors.end() && at->name == name ? &*at : nullptr;
}

std::string tensors_in(const Manifest& manifest, int file) {
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : manifest.tensors)
    if (std::any_of(tensor.pieces.begin(), tensor.pieces.end(),
                    [&](const PieceInfo& piece) { return piece.file == file; }))
      names.push_back(tensor.name);
  if (names.empty()) return "no tensor";
  return names.size() == 1 ? fmt::format("tensor {}", names[0])
                           : fmt::format("tensor {} and {} more", names[0], names.size() - 1);
}

void ShardSource::read(std::span<const NamedTensor> wanted) {
  // Ordered by file and offset, so that the disk is read in order and each box once.
  std::map<std::pair<int, int64_t>, PieceRead> reads;
  for (const NamedTensor& box : wanted) {
    const TensorInfo* const stored = stored_tensor(*manifest_, box.spec.name);
    for (const PieceInfo& piece : stored->pieces)
      if (auto part = intersect(piece.rect, box.spec.local)) {
        PieceRead& read = reads[{piece.file, piece.byte_offset}];
        read.tensor = stored;
        read.piece = &piece;
        read.parts.emplace_back(&box, *part);
      }
  }
  std::optional<File> file;
  int number = -1;
  for (const auto& [place, read] : reads) {
    if (place.first != number) {
      number = place.first;
      file.reset();
      file.emplace(open_shard(number));
    }
    read_piece(*file, read);
  }
}

// Opens a shard; the first time, checks everything in it except the elements.
File ShardSource::open_shard(int number) {
  const FileInfo& info = manifest_->files[static_cast<size_t>(number)];
  const std::string holds = tensors_in(*manifest_, number);
  try {
    File file(directory_ / info.name, File::Mode::Read);
    if (checked_.contains(number)) return file;
    check(file.size() == info.bytes, "{} has {} bytes instead of {}", info.name, file.size(), info.bytes);
    check(crc_of_rest(file, regions_of(number)) == info.frame_crc,
          "{} has changed bytes between the elements of its tensors", info.name);
    checked_.insert(number);
    return file;
  } catch (const Error& error) {
    bad_input("checkpoint {} is damaged: {}; it holds {}", directory_.string(), error.what(), holds);
  }
}

std::vector<KnownRegion> ShardSource::regions_of(int file) const {
  std::vector<KnownRegion> regions;
  for (const TensorInfo& tensor : manifest_->tensors)
    for (const PieceInfo& piece : tensor.pieces)
      if (piece.file == file)
        regions.push_back({piece.byte_offset,
                           piece.rect.elements() * static_cast<int64_t>(size_of(tensor.dtype)), piece.crc});
  std::sort(regions.begin(), regions.end(),
            [](const KnownRegion& a, const KnownRegion& b) { return a.offset < b.offset; });
  return regions;
}

}  // namespace trifold
