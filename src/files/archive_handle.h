// ArchiveHandle owns a reader of libarchive.
#pragma once

#include <archive.h>

#include <memory>

namespace trifold {

struct FreeArchive {
  void operator()(archive* opened) const { archive_read_free(opened); }
};
using ArchiveHandle = std::unique_ptr<archive, FreeArchive>;

}  // namespace trifold
