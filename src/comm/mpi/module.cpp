// The functions that trifold_mpi.so exports; comm/mpi_module.cpp finds these by name.
#include <array>

#include "comm/mpi/mpi_comm.h"
#include "comm/mpi_module.h"

extern "C" {

int64_t trifold_mpi_version() { return trifold::kMpiModuleVersion; }

// MPI_Get_library_version may be called before MPI_Init.
const char* trifold_mpi_library() {
  static std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) text[0] = '\0';
  return text.data();
}

// The caller owns the result.
trifold::Communicator* trifold_mpi_connect(const trifold::MpiModuleHost* host) {
  return std::make_unique<trifold::MpiCommunicator>(std::make_unique<trifold::MpiWorld>(*host)).release();
}
}
