#include "checkpoint/manifest_file.h"

#include <string>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "files/file.h"

namespace trifold {

namespace {

// Reads block by block, so that a file of any size takes little memory.
void check_ends(const std::filesystem::path& path) {
  const File file(path, File::Mode::Read);
  const int64_t size = file.size();
  if (size > kMostManifestBytes)
    bad_input("it has {} bytes, more than the {} that a manifest may have", size, kMostManifestBytes);
  const int64_t body = size - static_cast<int64_t>(kManifestTailBytes);
  if (body < 0) bad_input("its end is missing");
  std::string tail(kManifestTailBytes, '\0');
  file.read(tail.data(), tail.size(), body);
  if (!tail.ends_with(kManifestEnd)) bad_input("its end is missing");
  check_manifest_tail(tail, crc_of_file_range(file, 0, body));
}

}  // namespace

void check_manifest_tail(std::string_view tail, uint32_t crc_of_body) {
  if (tail.substr(kManifestCrcDigits) != kManifestEnd) bad_input("its end is missing");
  const std::string found = fmt::format("{:08x}", crc_of_body);
  const std::string_view stored = tail.substr(0, kManifestCrcDigits);
  if (found != stored)
    bad_input("it was changed after it was written: its CRC32 is {}, but it says {}", found,
              printable(stored));
}

Manifest read_manifest(const std::filesystem::path& path) {
  try {
    check_ends(path);
  } catch (const Error& error) {
    bad_input("{} cannot be used: {}", path.string(), error.what());
  }
  return parse_manifest(read_input_file(path.string(), kMostManifestBytes), path.string());
}

}  // namespace trifold
