#include "checkpoint/hdf5/hdf5_file.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "checkpoint/hdf5/hdf5_calls.h"

namespace trifold {

using hdf5::Handle;
using hdf5::Lock;
using hdf5::locked;
using hdf5::ok;
using hdf5::reason;

namespace {

hid_t file_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return H5T_IEEE_F64LE;
    case DType::F32:
      return H5T_IEEE_F32LE;
    case DType::I64:
      return H5T_STD_I64LE;
    case DType::I32:
      return H5T_STD_I32LE;
    case DType::U16:
    case DType::BF16:  // 16-bit floats are raw words to HDF5; the manifest says what they are
    case DType::F16:
      return H5T_STD_U16LE;
    case DType::U8:
      return H5T_STD_U8LE;
  }
  return -1;
}

hid_t memory_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return H5T_NATIVE_DOUBLE;
    case DType::F32:
      return H5T_NATIVE_FLOAT;
    case DType::I64:
      return H5T_NATIVE_INT64;
    case DType::I32:
      return H5T_NATIVE_INT32;
    case DType::U16:
    case DType::BF16:
    case DType::F16:
      return H5T_NATIVE_UINT16;
    case DType::U8:
      return H5T_NATIVE_UINT8;
  }
  return -1;
}

// Shapes as HDF5 expects them; a scalar becomes [1].
std::vector<hsize_t> dims_of(const Shape& shape) {
  std::vector<hsize_t> dims(shape.extents().begin(), shape.extents().end());
  if (dims.empty()) dims.push_back(1);
  return dims;
}

Handle space_of(const Shape& shape) {
  const std::vector<hsize_t> dims = dims_of(shape);
  return {H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose,
          "make a data space"};
}

// The data space of a block, with one box of it selected.
Handle select(const Rect& block, const Rect& part) {
  Handle space = space_of(block.extent);
  std::vector<hsize_t> start;
  for (int dim = 0; dim < part.offset.rank(); ++dim)
    start.push_back(static_cast<hsize_t>(part.offset[dim] - block.offset[dim]));
  if (start.empty()) start.push_back(0);
  const std::vector<hsize_t> count = dims_of(part.extent);
  ok(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
     "select a box");
  return space;
}

// The properties of a new dataset, group or file: no time stamps, so that equal saves give equal bytes.
Handle creation_properties(hid_t kind) {
  Handle properties(H5Pcreate(kind), H5Pclose, "make properties");
  ok(H5Pset_obj_track_times(properties, false), "switch time stamps off");
  return properties;
}

// Creates the missing groups of a dataset's path.
void make_groups(hid_t file, const std::string& dataset) {
  const Handle properties = creation_properties(H5P_GROUP_CREATE);
  for (size_t slash = dataset.find('/', 1); slash != std::string::npos;
       slash = dataset.find('/', slash + 1)) {
    const std::string path = dataset.substr(0, slash);
    if (ok(H5Lexists(file, path.c_str(), H5P_DEFAULT), "look for a group") > 0) continue;
    Handle group(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, properties, H5P_DEFAULT), H5Gclose,
                 "make a group");
    group.close();
  }
}

Handle access_properties() {
  Handle properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make properties");
  ok(H5Pset_libver_bounds(properties, H5F_LIBVER_V18, H5F_LIBVER_V110), "set version bounds");
  ok(H5Pset_fclose_degree(properties, H5F_CLOSE_STRONG), "set the way of closing");
  ok(H5Pset_file_locking(properties, false, true), "switch file locks off");
  // Elements of larger datasets start at a page boundary, where writing them is cheapest.
  ok(H5Pset_alignment(properties, 1 << 16, 1 << 12), "align datasets");
  return properties;
}

void set_missing_value(hid_t properties, DType dtype) {
  const auto set = [&](auto value) {
    ok(H5Pset_fill_value(properties, memory_type(dtype), &value), "set a fill value");
  };
  switch (dtype) {
    case DType::F64:
      return set(std::numeric_limits<double>::quiet_NaN());
    case DType::F32:
      return set(std::numeric_limits<float>::quiet_NaN());
    case DType::I64:
      return set(std::numeric_limits<int64_t>::min());
    case DType::I32:
      return set(std::numeric_limits<int32_t>::min());
    case DType::U16:
    case DType::BF16:  // all bits set: a NaN
    case DType::F16:
      return set(std::numeric_limits<uint16_t>::max());
    case DType::U8:
      return set(std::numeric_limits<uint8_t>::max());
  }
}

void write_attribute(hid_t file, const std::string& object, const std::string& name, hid_t type, hid_t space,
                     const void* value) {
  Handle attribute(H5Acreate_by_name(file, object.c_str(), name.c_str(), type, space, H5P_DEFAULT,
                                     H5P_DEFAULT, H5P_DEFAULT),
                   H5Aclose, "make an attribute");
  ok(H5Awrite(attribute, type, value), "write an attribute");
  attribute.close();
}

}  // namespace

Hdf5File::Hdf5File(std::filesystem::path path, int64_t id, std::unique_ptr<Hdf5Image> image)
    : path_(std::move(path)), id_(id), image_(std::move(image)) {}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : path_(std::move(other.path_)), id_(std::exchange(other.id_, -1)), image_(std::move(other.image_)) {}

Hdf5File::~Hdf5File() {
  if (id_ < 0) return;
  const Lock lock;
  H5Fclose(id_);
}

Hdf5File Hdf5File::create(const std::filesystem::path& path) {
  return locked(path, "", [&] {
    auto image = std::make_unique<Hdf5Image>();
    const Handle access = access_properties();
    keep_in_image(access, *image);
    const Handle creation = creation_properties(H5P_FILE_CREATE);
    const hid_t id = ok(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), "create the file");
    return Hdf5File(path, id, std::move(image));
  });
}

Hdf5File Hdf5File::open_read(const std::filesystem::path& path) {
  return locked(path, "", [&] {
    const Handle access = access_properties();
    return Hdf5File(path, ok(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), "open the file"), nullptr);
  });
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, const std::string& value) {
  locked(path_, object, [&] {
    const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "make a type");
    ok(H5Tset_size(type, value.size() + 1), "size a type");
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose, "make a data space");
    write_attribute(id_, object, name, type, space, value.c_str());
  });
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             std::span<const int64_t> values) {
  locked(path_, object, [&] {
    const hsize_t count = values.size();
    const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "make a data space");
    write_attribute(id_, object, name, H5T_NATIVE_INT64, space, values.data());
  });
}

int64_t Hdf5File::reserve(const std::string& dataset, DType dtype, const Shape& shape) {
  return locked(path_, dataset, [&] {
    const Handle space = space_of(shape);
    make_groups(id_, dataset);
    const Handle properties = creation_properties(H5P_DATASET_CREATE);
    ok(H5Pset_layout(properties, H5D_CONTIGUOUS), "ask for a contiguous layout");
    ok(H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY), "ask for early allocation");
    ok(H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER), "switch filling off");
    Handle set(
        H5Dcreate2(id_, dataset.c_str(), file_type(dtype), space, H5P_DEFAULT, properties, H5P_DEFAULT),
        H5Dclose, "make the dataset");
    const haddr_t offset = H5Dget_offset(set);
    check(offset != HADDR_UNDEF, "HDF5 does not give the offset of the dataset: {}", reason());
    set.close();
    return static_cast<int64_t>(offset);
  });
}

void Hdf5File::write_virtual(const std::string& dataset, DType dtype, const Shape& shape,
                             std::span<const Source> sources) {
  locked(path_, dataset, [&] {
    make_groups(id_, dataset);
    const Handle properties = creation_properties(H5P_DATASET_CREATE);
    set_missing_value(properties, dtype);
    for (const Source& source : sources) {
      const Handle here = select(Rect::whole(shape), source.rect);
      const Handle there = space_of(source.rect.extent);
      ok(H5Pset_virtual(properties, here, source.file.c_str(), source.dataset.c_str(), there), "map a box");
    }
    const Handle space = space_of(shape);
    Handle set(
        H5Dcreate2(id_, dataset.c_str(), file_type(dtype), space, H5P_DEFAULT, properties, H5P_DEFAULT),
        H5Dclose, "make the virtual dataset");
    set.close();
  });
}

void Hdf5File::read(const std::string& dataset, const Rect& stored, const Rect& part, const Tensor& data,
                    const Rect& wanted) const {
  locked(path_, dataset, [&] {
    Handle set(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), H5Dclose, "open the dataset");
    const Handle from = select(stored, part);
    const Handle to = select(wanted, part);
    ok(H5Dread(set, memory_type(data.dtype), to, from, H5P_DEFAULT, data.data), "read the dataset");
    set.close();
  });
}

void Hdf5File::close() {
  locked(path_, "", [&] { ok(H5Fclose(std::exchange(id_, -1)), "close the file"); });
  if (!image_) return;
  File file(path_, File::Mode::Create);
  image_->write_to(file);
  file.close();
  image_.reset();
}

}  // namespace trifold
