# SPDX-License-Identifier: Apache-2.0
# make install: libraries, headers, pkg-config and CMake packages, the binary, its manual page.
include(CMakePackageConfigHelpers)

# What the archive needs beside libc, as paths for CMake and as flags for pkg-config.
set(TACIT_PRIVATE_LIBRARIES m pthread ${CMAKE_DL_LIBS})
get_target_property(tacit_optional_libraries tacit_optional INTERFACE_LINK_LIBRARIES)
foreach(library ${tacit_optional_libraries})
  if(TARGET ${library})
    get_target_property(more ${library} INTERFACE_LINK_LIBRARIES)
    if(more)
      list(APPEND TACIT_PRIVATE_LIBRARIES ${more})
    endif()
  elseif(library)
    list(APPEND TACIT_PRIVATE_LIBRARIES ${library})
  endif()
endforeach()
list(REMOVE_DUPLICATES TACIT_PRIVATE_LIBRARIES)
set(TACIT_PRIVATE_FLAGS)
foreach(library ${TACIT_PRIVATE_LIBRARIES})
  if(library MATCHES "^[/-]")
    string(APPEND TACIT_PRIVATE_FLAGS " ${library}")
  else()
    string(APPEND TACIT_PRIVATE_FLAGS " -l${library}")
  endif()
endforeach()

install(TARGETS tacit_shared tacit_static
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tacit)
  install(TARGETS tacit RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tacit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_SOURCE_DIR}/docs/tacit.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

set(tacit_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tacit)
file(RELATIVE_PATH TACIT_CONFIG_TO_PREFIX /${tacit_cmake_dir} /)
configure_file(${CMAKE_SOURCE_DIR}/cmake/tacit-config.cmake.in
  ${CMAKE_BINARY_DIR}/package/tacit-config.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/tacit-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/tacit-config.cmake
  ${CMAKE_BINARY_DIR}/package/tacit-config-version.cmake DESTINATION ${tacit_cmake_dir})
# The prefix may be chosen at install time, so the .pc file is written then.
install(CODE "
  set(PROJECT_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
  set(PROJECT_VERSION \"${PROJECT_VERSION}\")
  set(TACIT_PRIVATE_FLAGS \"${TACIT_PRIVATE_FLAGS}\")
  set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
  set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
  configure_file(\"${CMAKE_SOURCE_DIR}/cmake/tacit.pc.in\"
    \"${CMAKE_BINARY_DIR}/package/tacit.pc\" @ONLY)
  file(INSTALL \"${CMAKE_BINARY_DIR}/package/tacit.pc\"
    DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig\")")

if(TACIT_TESTS AND NOT TACIT_SANITIZE)
  add_test(NAME api.install COMMAND ${CMAKE_SOURCE_DIR}/scripts/test-install ${CMAKE_BINARY_DIR})
  set_tests_properties(api.install PROPERTIES TIMEOUT 600)
endif()
if(TACIT_TESTS)
  # The public headers alone, as strict C++ and as C89 would include them.
  find_program(TACIT_CXX NAMES c++ g++ clang++)
  foreach(header tacit task)
    file(WRITE ${CMAKE_BINARY_DIR}/include/${header}.cpp
      "#include <tacit/${header}.h>\n#include <tacit/${header}.h>\nint main() { return tacit_status_text(TACIT_OK) == nullptr; }\n")
    if(TACIT_CXX)
      add_test(NAME api.include_cxx_${header} COMMAND ${TACIT_CXX} -std=c++11 -Wall -Wextra
        -pedantic -Werror -fsyntax-only -I${CMAKE_SOURCE_DIR}/include
        ${CMAKE_BINARY_DIR}/include/${header}.cpp)
    endif()
  endforeach()
  add_test(NAME api.include_c89 COMMAND ${CMAKE_C_COMPILER} -std=c89 -Wall -Wextra -pedantic
    -Werror -fsyntax-only -I${CMAKE_SOURCE_DIR}/include
    ${CMAKE_SOURCE_DIR}/tests/api/include_c89.c)
endif()
