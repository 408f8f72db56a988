// The manifest as a file. Damaged files, and files of other kinds, are rejected before the text is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "checkpoint/manifest.h"

namespace trifold {

// A manifest ends with the eight digits of the CRC32 of all text before them, and `"\n}\n`.
inline constexpr size_t kManifestCrcDigits = 8;              // hexadecimal
inline constexpr std::string_view kManifestEnd = "\"\n}\n";  // follows the digits
inline constexpr size_t kManifestTailBytes = kManifestCrcDigits + kManifestEnd.size();

// Larger files are rejected; a box takes about 100 bytes.
inline constexpr int64_t kMostManifestBytes = int64_t{1} << 30;

// Throws unless `tail`, the last kManifestTailBytes of a manifest, belongs to text with this CRC before it.
void check_manifest_tail(std::string_view tail, uint32_t crc_of_body);

// Reads and checks the manifest in a file, as parse_manifest does. Throws BadInput that names the file.
Manifest read_manifest(const std::filesystem::path& path);

}  // namespace trifold
