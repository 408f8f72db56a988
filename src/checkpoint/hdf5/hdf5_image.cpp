#include "checkpoint/hdf5/hdf5_image.h"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/error.h"

namespace trifold {

void Hdf5Image::write(int64_t at, const void* from, size_t bytes) {
  const auto* data = static_cast<const std::byte*>(from);
  const int64_t end = at + static_cast<int64_t>(bytes);
  size_ = std::max(size_, end);
  while (at < end) {
    const int64_t inside = at % kPage;
    const int64_t part = std::min(kPage - inside, end - at);
    Page& page = pages_.try_emplace(at / kPage, Page{}).first->second;
    std::memcpy(page.data() + inside, data, static_cast<size_t>(part));
    at += part;
    data += part;
  }
}

void Hdf5Image::read(int64_t at, void* to, size_t bytes) const {
  auto* out = static_cast<std::byte*>(to);
  const int64_t end = at + static_cast<int64_t>(bytes);
  while (at < end) {
    const int64_t inside = at % kPage;
    const int64_t part = std::min(kPage - inside, end - at);
    const auto page = pages_.find(at / kPage);
    if (page == pages_.end())
      std::memset(out, 0, static_cast<size_t>(part));
    else
      std::memcpy(out, page->second.data() + inside, static_cast<size_t>(part));
    at += part;
    out += part;
  }
}

void Hdf5Image::write_to(const File& file) const {
  file.resize(size_);
  for (const auto& [number, page] : pages_) {
    const int64_t at = number * kPage;
    if (at < size_) file.write(page.data(), static_cast<size_t>(std::min(kPage, size_ - at)), at);
  }
}

namespace {

// An image as an open file of a virtual file driver. HDF5 fills in the first part.
struct OpenImage {
  H5FD_t driver;
  Hdf5Image* image;
  haddr_t end_of_room;
};

OpenImage* opened(H5FD_t* file) { return reinterpret_cast<OpenImage*>(file); }
const OpenImage* opened(const H5FD_t* file) { return reinterpret_cast<const OpenImage*>(file); }

// Keeps exceptions from passing through the library.
template <class Body>
herr_t guarded(Body&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

H5FD_t* open_image(const char*, unsigned, hid_t access, haddr_t) {
  const void* info = H5Pget_driver_info(access);
  if (info == nullptr) return nullptr;
  auto* file = new (std::nothrow) OpenImage{};
  if (file != nullptr) file->image = *static_cast<Hdf5Image* const*>(info);
  return reinterpret_cast<H5FD_t*>(file);
}

herr_t close_image(H5FD_t* file) {
  delete opened(file);
  return 0;
}

herr_t query_image(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA;
  return 0;
}

haddr_t end_of_room(const H5FD_t* file, H5FD_mem_t) { return opened(file)->end_of_room; }

herr_t set_end_of_room(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  opened(file)->end_of_room = end;
  return 0;
}

haddr_t end_of_image(const H5FD_t* file, H5FD_mem_t) {
  return static_cast<haddr_t>(opened(file)->image->size());
}

herr_t read_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t bytes, void* to) {
  return guarded([&] { opened(file)->image->read(static_cast<int64_t>(at), to, bytes); });
}

herr_t write_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t bytes, const void* from) {
  return guarded([&] { opened(file)->image->write(static_cast<int64_t>(at), from, bytes); });
}

herr_t truncate_image(H5FD_t* file, hid_t, hbool_t) {
  opened(file)->image->resize(static_cast<int64_t>(opened(file)->end_of_room));
  return 0;
}

hid_t image_driver() {
  static const hid_t kId = [] {
    H5FD_class_t driver{};
    driver.name = "trifold_image";
    driver.maxaddr = static_cast<haddr_t>(INT64_MAX);
    driver.fc_degree = H5F_CLOSE_STRONG;
    driver.fapl_size = sizeof(void*);  // the property is the pointer to an image
    driver.open = open_image;
    driver.close = close_image;
    driver.query = query_image;
    driver.get_eoa = end_of_room;
    driver.set_eoa = set_end_of_room;
    driver.get_eof = end_of_image;
    driver.read = read_image;
    driver.write = write_image;
    driver.truncate = truncate_image;
    return H5FDregister(&driver);
  }();
  return kId;
}

}  // namespace

void keep_in_image(int64_t access_properties, Hdf5Image& image) {
  Hdf5Image* const info = &image;
  check(image_driver() >= 0 &&
            H5Pset_driver(access_properties, image_driver(), static_cast<const void*>(&info)) >= 0,
        "HDF5 cannot work in memory");
}

}  // namespace trifold
