# `cmake --install` makes a tree that can be moved, and copied to another Linux host with the same or a newer glibc:
#
#   bin/trifold                  the program
#   lib/trifold                  its modules, and every library they need except those of glibc
#   share/trifold/configs        configurations, which --config finds by name
#   share/man, share/bash-completion, share/doc/trifold
#
# Its components: `program` is everything but the libraries, which are the component `libraries`; a package whose system
# provides them (TrifoldPackage.cmake, tools/wheel.sh) takes `program` alone. The program searches lib/trifold first, for
# itself and for the libraries of its libraries: an RPATH, not a RUNPATH (--disable-new-dtags). The libraries of CUDA,
# cuDNN and NCCL are not copied: the CUDA module finds them on the host.
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
  RUNTIME DESTINATION bin COMPONENT program
  LIBRARY DESTINATION lib/trifold COMPONENT program)
install(RUNTIME_DEPENDENCY_SET needed
  PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|util|resolv|anl)\\.so" "^ld-linux" "^linux-vdso"
  POST_EXCLUDE_REGEXES "/lib(c|m|dl|rt|pthread|util|resolv|anl)\\.so"
  LIBRARY DESTINATION lib/trifold COMPONENT libraries)

install(DIRECTORY launch/configs/ DESTINATION share/trifold/configs COMPONENT program FILES_MATCHING PATTERN "*.cfg")
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION share/doc/trifold COMPONENT program)
install(DIRECTORY docs DESTINATION share/doc/trifold COMPONENT program)

# The program itself writes its manual page and completion, so that they always match its options.
set(generated ${PROJECT_BINARY_DIR}/installed)
install(CODE "
  file(MAKE_DIRECTORY \"${generated}\")
  execute_process(COMMAND \"$<TARGET_FILE:trifold>\" man-page OUTPUT_FILE \"${generated}/trifold.1\"
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9 -n -c \"${generated}/trifold.1\" OUTPUT_FILE \"${generated}/trifold.1.gz\"
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND \"$<TARGET_FILE:trifold>\" completion bash OUTPUT_FILE \"${generated}/trifold\"
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
install(FILES ${generated}/trifold.1.gz DESTINATION share/man/man1 COMPONENT program)
install(FILES ${generated}/trifold DESTINATION share/bash-completion/completions COMPONENT program)
