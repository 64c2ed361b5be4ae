# SPDX-License-Identifier: Apache-2.0
# The CUDA code of src/cuda: AUTO compiles it where nvcc is, ON insists, OFF leaves it out. One fat
# object per file; the runtime is linked statically, driver and device are looked for at run time.
set(TACIT_CUDA AUTO CACHE STRING "Compile the CUDA code: AUTO, ON or OFF")
set(cuda_objects)
if(NOT TACIT_CUDA STREQUAL "OFF")
  find_program(TACIT_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(TACIT_NVCC)
    get_filename_component(cuda_bin ${TACIT_NVCC} REALPATH)
    get_filename_component(cuda_bin ${cuda_bin} DIRECTORY)
    find_library(TACIT_CUDART cudart_static HINTS ${cuda_bin}/../lib64 ${cuda_bin}/../lib
      ${cuda_bin}/../targets/x86_64-linux/lib)
  endif()
  if(TACIT_NVCC AND TACIT_CUDART)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cu)
    file(GLOB cuda_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.h
      ${CMAKE_SOURCE_DIR}/src/cuda/*.cuh)
    foreach(source ${cuda_sources})
      get_filename_component(name ${source} NAME_WE)
      set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
      add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
        COMMAND ${TACIT_CCACHE} ${TACIT_NVCC} -std=c++17 -O3 -Xfatbin=-compress-all -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
          -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
          --generate-code=arch=compute_80,code=sm_80
          --generate-code=arch=compute_90,code=[sm_90,compute_90]
          -c ${source} -o ${object}
        DEPENDS ${source} ${cuda_headers} VERBATIM COMMENT "nvcc ${name}.cu")
      list(APPEND cuda_objects ${object})
    endforeach()
    target_compile_definitions(tacit_optional INTERFACE TACIT_HAVE_CUDA=1)
    target_link_libraries(tacit_optional INTERFACE ${TACIT_CUDART} rt ${CMAKE_DL_LIBS})
    message(STATUS "CUDA: ${TACIT_NVCC}")
  elseif(TACIT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TACIT_CUDA=ON but nvcc or libcudart_static was not found")
  else()
    message(STATUS "CUDA: no nvcc, built without")
  endif()
endif()
