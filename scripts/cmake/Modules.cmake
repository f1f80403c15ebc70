# magister_module(NAME [KNOWS module ...] LINKS library ... [ATEN] [FEW_OPS]): one static library from src/NAME/**.cpp.
# KNOWS: the modules below that it may include and link. ATEN: its files see ATen, precompiled. FEW_OPS: those of its files that include no ATen/ATen.h
# say what is to be done and compute nothing, so they are compiled for a short build (-Og); MAGISTER_COMPUTES names the exceptions.
# Backends by file, absent ones too: *_cuda.cpp, *_nccl.cpp and *_cuda.cu (by nvcc) are built with GPU code, *_no_cuda.cpp / *_no_nccl.cpp without;
# *_arrow.cpp belong to the plug-in (ArrowPlugin.cmake). Files named *_avx512.cpp, *_avx512bf16.cpp, *_amx.cpp get their instruction set. Why, and what
# each part saves: src/decisions/026-files-of-a-module-are-compiled-together.md

# Each level of optimisation has a header of its own: a file that includes <immintrin.h>, as ATen does, is compiled at the level of its precompiled
# header, whatever the command line says (findings/gxx_precompiled_header_keeps_its_level.sh).
function(magister_precompiled NAME HEADER)
  add_library(${NAME} OBJECT ${CMAKE_SOURCE_DIR}/scripts/cmake/precompiled.cpp)
  target_link_libraries(${NAME} PRIVATE Torch::CPU)
  target_precompile_headers(${NAME} PRIVATE ${HEADER})
  target_compile_options(${NAME} PRIVATE ${ARGN})
endfunction()
magister_precompiled(magister_aten_pch <ATen/ATen.h>)
magister_precompiled(magister_tensor_pch <ATen/core/Tensor.h> -Og)

# compiled_together(OUT NAME path ...): leaves in OUT as few files as hold at most MAGISTER_UNITY paths below src/ each, of like size, which include them: a
# module's files see the same headers and ask for the same templates, so that one file more costs up to ten seconds. Named and included by paths below src/
# alone, so that a clone elsewhere finds what it compiles in the compiler's cache. A file's own names must differ from those of its module.
# With MAGISTER_UNITY=OFF: the sources themselves.
function(compiled_together OUT NAME)
  set(files ${ARGN})
  if(MAGISTER_UNITY)
    set(files "")
    set(first 0)
    list(LENGTH ARGN left)
    math(EXPR parts "(${left} + ${MAGISTER_UNITY} - 1) / ${MAGISTER_UNITY}")
    while(parts GREATER 0)
      math(EXPR count "(${left} + ${parts} - 1) / ${parts}")
      list(SUBLIST ARGN ${first} ${count} batch)
      list(JOIN batch "\"\n#include \"" includes)
      list(LENGTH files number)
      set(file ${CMAKE_BINARY_DIR}/unity/${NAME}_${number}.cpp)
      file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${includes}\"\n" @ONLY)
      list(APPEND files ${file})
      math(EXPR first "${first} + ${count}")
      math(EXPR left "${left} - ${count}")
      math(EXPR parts "${parts} - 1")
    endwhile()
  else()
    list(TRANSFORM files PREPEND ${CMAKE_SOURCE_DIR}/src/)
  endif()
  set(${OUT} ${files} PARENT_SCOPE)
endfunction()

# The flags of files that are compiled for an instruction set of their own, by name; without a precompiled header, which is compiled for another.
function(magister_own_flags OUT PATH)
  set(flags "")
  if(PATH MATCHES "_avx512\\.cpp$")
    set(flags -O3 -march=x86-64-v4 -mprefer-vector-width=512 -Wno-maybe-uninitialized)
  elseif(PATH MATCHES "_amx\\.cpp$")
    set(flags -O3 -march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16)
  elseif(PATH MATCHES "_avx512bf16\\.cpp$")
    set(flags -O3 -march=x86-64-v4 -mavx512bf16)
  elseif(PATH MATCHES "_avx2\\.cpp$")
    set(flags -O3 -Wno-psabi)
  endif()
  set(${OUT} "${flags}" PARENT_SCOPE)
endfunction()

# magister_sources(MODULE FEW_OPS): sets alone (compiled as they are), computing and directing (paths below src/, compiled together) in the caller.
function(magister_sources MODULE FEW_OPS)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${MODULE}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_arrow\\.cpp$")
  if(MAGISTER_HAVE_CUDA)
    list(FILTER sources EXCLUDE REGEX "_no_(cuda|nccl)\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "[^o]_(cuda|nccl)\\.cpp$")
  endif()
  set(alone "")
  set(computing "")
  set(directing "")
  foreach(source ${sources})
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${source})
    file(STRINGS ${source} ops REGEX "^#include <(ATen/ATen\\.h|torch/)" LIMIT_COUNT 1)
    magister_own_flags(flags ${path})
    if(flags)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}" SKIP_PRECOMPILE_HEADERS ON)
      list(APPEND alone ${source})
    elseif(path MATCHES "_(cuda|nccl)\\.cpp$" AND NOT path MATCHES "_no_(cuda|nccl)\\.cpp$" OR path IN_LIST MAGISTER_ALONE)
      list(APPEND alone ${source})
    elseif(FEW_OPS AND NOT ops AND NOT path IN_LIST MAGISTER_COMPUTES)
      list(APPEND directing ${path})
    else()
      list(APPEND computing ${path})
    endif()
  endforeach()
  foreach(kind alone computing directing)
    set(${kind} ${${kind}} PARENT_SCOPE)
  endforeach()
endfunction()

# What both parts of a module see.
function(magister_sees TARGET)
  target_include_directories(${TARGET} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${TARGET} PUBLIC ${ARGN})
endfunction()

function(magister_module NAME)
  cmake_parse_arguments(MODULE "ATEN;FEW_OPS" "" "KNOWS;LINKS" ${ARGN})
  magister_sources(${NAME} ${MODULE_FEW_OPS})
  compiled_together(computing ${NAME} ${computing})
  compiled_together(directing ${NAME}_directing ${directing})
  list(TRANSFORM MODULE_KNOWS PREPEND magister_)
  add_library(magister_${NAME} STATIC ${alone} ${computing})
  set_target_properties(magister_${NAME} PROPERTIES LINKER_LANGUAGE CXX)  # also where all its files are objects of the other part
  magister_sees(magister_${NAME} ${MODULE_KNOWS} ${MODULE_LINKS})
  if(MODULE_ATEN)
    target_precompile_headers(magister_${NAME} REUSE_FROM magister_aten_pch)
  endif()
  if(directing)
    add_library(magister_${NAME}_directing OBJECT ${directing})
    magister_sees(magister_${NAME}_directing ${MODULE_KNOWS} ${MODULE_LINKS})
    target_compile_options(magister_${NAME}_directing PRIVATE -Og)
    if(MODULE_ATEN)
      target_precompile_headers(magister_${NAME}_directing REUSE_FROM magister_tensor_pch)
    endif()
    target_sources(magister_${NAME} PRIVATE $<TARGET_OBJECTS:magister_${NAME}_directing>)
  endif()
  if(MAGISTER_HAVE_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${NAME}/*_cuda.cu)
    magister_kernels(magister_${NAME} ${kernels})
  endif()
endfunction()

# magister_define(NAME definition ...): for both parts of a module.
function(magister_define NAME)
  target_compile_definitions(magister_${NAME} PRIVATE ${ARGN})
  if(TARGET magister_${NAME}_directing)
    target_compile_definitions(magister_${NAME}_directing PRIVATE ${ARGN})
  endif()
endfunction()

# magister_kernels(TARGET file.cu ...): compiled by nvcc for MAGISTER_CUDA_ARCHITECTURES, with the PTX of the
# last for what comes after (8.6 and 8.9 run the code of 8.0). Packed for size, as libtorch's own kernels are: 16.4 MB of device code
# become about 3 in every program. Not CMake's own CUDA language, whose tests want a whole toolkit to link with.
function(magister_kernels TARGET)
  set(architectures "")
  set(earlier ${MAGISTER_CUDA_ARCHITECTURES})
  list(POP_BACK earlier last)
  foreach(number ${earlier})
    list(APPEND architectures -gencode arch=compute_${number},code=sm_${number})
  endforeach()
  list(APPEND architectures -gencode arch=compute_${last},code=[sm_${last},compute_${last}])
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
