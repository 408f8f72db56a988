# Debian package: `cpack --config build/release/CPackConfig.cmake -B build` writes build/trifold_<version>_amd64.deb from
# what is built. It takes the component `program`; dpkg-shlibdeps finds the packages of its libraries. DEBFULLNAME and
# DEBEMAIL name its maintainer, as they do for Debian's own tools.
if(NOT TARGET trifold)
  return()
endif()

set(maintainer "$ENV{DEBFULLNAME}")
if(NOT maintainer)
  set(maintainer "Trifold")
endif()
set(mail "$ENV{DEBEMAIL}")
if(NOT mail)
  cmake_host_system_information(RESULT host QUERY HOSTNAME)
  set(mail "trifold@${host}")
endif()

# Further requirements of Debian's policy for a package.
set(debian ${PROJECT_BINARY_DIR}/debian)
string(TIMESTAMP year "%Y" UTC)
file(WRITE ${debian}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Trifold

Files: *
Copyright: ${year} The Trifold authors
License: Apache-2.0
 The text of this licence is in /usr/share/common-licenses/Apache-2.0.
")
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${debian}/changelog "trifold (${PROJECT_VERSION}) unstable; urgency=medium

  * Version ${PROJECT_VERSION}.

 -- ${maintainer} <${mail}>  ${now}
")
execute_process(COMMAND gzip -9 -n -c ${debian}/changelog OUTPUT_FILE ${debian}/changelog.gz COMMAND_ERROR_IS_FATAL ANY)
install(FILES ${debian}/copyright ${debian}/changelog.gz DESTINATION share/doc/trifold COMPONENT debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};trifold;program;/;${PROJECT_BINARY_DIR};trifold;debian;/")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME trifold)
set(CPACK_PACKAGE_CONTACT "${maintainer} <${mail}>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains transformers and recommenders on a mesh of ranks")
set(CPACK_PACKAGE_DESCRIPTION "Trifold trains transformers and recommenders with tensor, pipeline
and data parallelism. Ranks are threads, or processes that an MPI launcher
starts; a plan shows memory, traffic and time of a run before it starts.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
include(CPack)
