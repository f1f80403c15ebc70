# magister_module(NAME [KNOWS module ...] LINKS library ... [ATEN]): one static library from src/NAME/**.cpp.
# KNOWS: the modules below that it may include and link. ATEN: compile with the shared precompiled ATen header (2 s per file
# instead of 10). Backends by file, absent ones too: *_cuda.cpp, *_nccl.cpp and *_cuda.cu (by nvcc) are built with GPU code,
# *_no_cuda.cpp / *_no_nccl.cpp without; *_arrow.cpp belong to the plug-in (ArrowPlugin.cmake). Files named *_avx512.cpp, *_avx512bf16.cpp, *_amx.cpp get their instruction set and no precompiled header.
add_library(magister_aten_pch OBJECT ${CMAKE_SOURCE_DIR}/scripts/cmake/aten_pch.cpp)
target_link_libraries(magister_aten_pch PRIVATE Torch::CPU)
target_precompile_headers(magister_aten_pch PRIVATE <ATen/ATen.h>)

# unity_groups(TARGET source ...): files of one folder, eight at a time, are compiled as one. Every file with ATen's header pays 2 s for
# templates that the header's inline functions ask for, so a build from nothing takes a fraction of the time. Left alone: files with flags
# of their own (CMake does that), what a build with or without GPU code chooses by file, and the families, whose functions share names.
function(unity_groups TARGET)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source ${ARGN})
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER ${folder} group)
    if(NOT group MATCHES "_model_families$" AND NOT source MATCHES "_(cuda|nccl)\\.cpp$")
      math(EXPR batch "${count_${group}} + 0")
      math(EXPR count_${group} "${batch} + 1")
      math(EXPR batch "${batch} / 8")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${batch})
    endif()
  endforeach()
endfunction()

function(magister_module NAME)
  cmake_parse_arguments(MODULE "" "" "KNOWS;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${NAME}/*.cpp)
  if(MAGISTER_HAVE_CUDA)
    list(FILTER sources EXCLUDE REGEX "_no_(cuda|nccl)\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "[^o]_(cuda|nccl)\\.cpp$")
  endif()
  list(FILTER sources EXCLUDE REGEX "_arrow\\.cpp$")
  if(NOT sources)
    file(WRITE ${CMAKE_BINARY_DIR}/empty_${NAME}.cpp "")
    set(sources ${CMAKE_BINARY_DIR}/empty_${NAME}.cpp)
  endif()
  add_library(magister_${NAME} STATIC ${sources})
  target_include_directories(magister_${NAME} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR}/src)
  foreach(module ${MODULE_KNOWS})
    target_link_libraries(magister_${NAME} PUBLIC magister_${module})
  endforeach()
  set(links ${MODULE_LINKS})
  list(FIND links ATEN aten)
  list(REMOVE_ITEM links ATEN)
  target_link_libraries(magister_${NAME} PUBLIC ${links})
  if(MAGISTER_HAVE_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${NAME}/*_cuda.cu)
    magister_kernels(magister_${NAME} ${kernels})
  endif()
  if(NOT aten EQUAL -1)
    target_precompile_headers(magister_${NAME} REUSE_FROM magister_aten_pch)
    if(MAGISTER_UNITY)
      unity_groups(magister_${NAME} ${sources})
    endif()
  endif()
  foreach(source ${sources})
    if(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O3;-march=x86-64-v4;-mprefer-vector-width=512;-Wno-maybe-uninitialized" SKIP_PRECOMPILE_HEADERS ON)
    elseif(source MATCHES "_amx\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O3;-march=x86-64-v4;-mavx512bf16;-mamx-tile;-mamx-bf16" SKIP_PRECOMPILE_HEADERS ON)
    elseif(source MATCHES "_avx512bf16\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O3;-march=x86-64-v4;-mavx512bf16" SKIP_PRECOMPILE_HEADERS ON)
    elseif(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O3;-Wno-psabi" SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# magister_kernels(TARGET file.cu ...): compiled by nvcc for A100 (sm_80), H100/H200 (sm_90) and B200 (sm_100), with the PTX of the
# last for what comes after (8.6 and 8.9 run the code of 8.0). Packed for size, as libtorch's own kernels are: 16.4 MB of device code
# become about 3 in every program. Not CMake's own CUDA language, whose tests want a whole toolkit to link with.
function(magister_kernels TARGET)
  set(architectures -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
                    -gencode arch=compute_100,code=[sm_100,compute_100])
  foreach(source ${ARGN})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/src ${source})
    string(REPLACE "/" "_" name ${name})
    set(object ${CMAKE_BINARY_DIR}/kernels/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/kernels
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${MAGISTER_NVCC} -c -O3 -std=c++20 ${architectures} --compress-mode=size
              -ccbin ${CMAKE_CXX_COMPILER} -I${CMAKE_SOURCE_DIR}/include
              -I${CMAKE_SOURCE_DIR}/src -I${CUDA_RUNTIME_INCLUDE} -MD -MF ${object}.d -MT ${object} ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${name}" VERBATIM)
    target_sources(${TARGET} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
endfunction()
