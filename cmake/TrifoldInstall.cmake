# `cmake --install` makes a tree that can be moved, and copied to another Linux host of the same kind: the program in
# bin, its modules and every library they need, but those of glibc, in lib/trifold. The program looks there first, for
# itself and for whatever it loads: an RPATH (not RUNPATH, --disable-new-dtags) also counts for the libraries of
# libraries. CUDA's, cuDNN's and NCCL's libraries are not copied: the CUDA module finds them on the host.
if(NOT TARGET trifold)
  return()
endif()

set(installed trifold)
foreach(module trifold_mpi trifold_cuda)
  if(TARGET ${module})
    list(APPEND installed ${module})
    set_target_properties(${module} PROPERTIES INSTALL_RPATH "$ORIGIN")
  endif()
endforeach()
set_target_properties(trifold PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/trifold")
target_link_options(trifold PRIVATE -Wl,--disable-new-dtags)

install(TARGETS ${installed} RUNTIME_DEPENDENCY_SET needed
  RUNTIME DESTINATION bin
  LIBRARY DESTINATION lib/trifold)
install(RUNTIME_DEPENDENCY_SET needed
  PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|util|resolv|anl)\\.so" "^ld-linux" "^linux-vdso"
  POST_EXCLUDE_REGEXES "/lib(c|m|dl|rt|pthread|util|resolv|anl)\\.so"
  LIBRARY DESTINATION lib/trifold)
