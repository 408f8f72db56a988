// The functions that trifold_mpi.so exports; comm/mpi_module.cpp finds these by name.
#include "comm/mpi/mpi_comm.h"
#include "comm/mpi_module.h"

extern "C" {

int64_t trifold_mpi_version() { return trifold::kMpiModuleVersion; }

// The caller owns the result.
trifold::Communicator* trifold_mpi_connect(const trifold::MpiModuleHost* host) {
  return std::make_unique<trifold::MpiCommunicator>(std::make_unique<trifold::MpiWorld>(*host)).release();
}
}
