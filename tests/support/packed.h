// Compresses files, in every format that files/byte_reader.h reads.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <memory>
#include <string>
#include <string_view>

#include "files/byte_reader.h"
#include "support/files.h"

namespace trifold::test {

inline int libarchive_filter(Packing packing) {
  switch (packing) {
    case Packing::Gzip:
      return ARCHIVE_FILTER_GZIP;
    case Packing::Xz:
      return ARCHIVE_FILTER_XZ;
    case Packing::Bzip2:
      return ARCHIVE_FILTER_BZIP2;
    case Packing::Zstd:
    case Packing::None:
      break;
  }
  return ARCHIVE_FILTER_NONE;
}

// Zstandard with a checksum, like the program zstd and unlike libarchive.
inline std::string compressed_by_zstd(std::string_view content) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  const size_t size =
      ZSTD_compress2(context.get(), packed.data(), packed.size(), content.data(), content.size());
  EXPECT_EQ(ZSTD_isError(size), 0U);
  packed.resize(size);
  return packed;
}

inline std::string compressed(std::string_view content, Packing packing) {
  if (packing == Packing::Zstd) return compressed_by_zstd(content);
  const std::unique_ptr<archive, decltype(&archive_write_free)> out(archive_write_new(), archive_write_free);
  const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(),
                                                                            archive_entry_free);
  std::string packed(2 * content.size() + 4096, '\0');
  size_t size = 0;
  archive_write_add_filter(out.get(), libarchive_filter(packing));
  archive_write_set_format_raw(out.get());
  EXPECT_EQ(archive_write_set_filter_option(out.get(), nullptr, "compression-level", "1"), ARCHIVE_OK);
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  EXPECT_EQ(archive_write_open_memory(out.get(), packed.data(), packed.size(), &size), ARCHIVE_OK);
  EXPECT_EQ(archive_write_header(out.get(), entry.get()), ARCHIVE_OK);
  EXPECT_EQ(archive_write_data(out.get(), content.data(), content.size()), std::ssize(content));
  EXPECT_EQ(archive_write_close(out.get()), ARCHIVE_OK);
  packed.resize(size);
  return packed;
}

// Compressed in the format of the name's suffix.
inline void write_packed(const std::string& path, std::string_view content) {
  write_file(path, compressed(content, packing_of(path)));
}

}  // namespace trifold::test
