package libmpi

import (
	"fmt"
	"path/filepath"
	"strings"
)

// abi is what differs between the binary interfaces. Sources of the constants: mpi_abi.h
// of github.com/mpi-forum/mpi-abi-stubs, mpi.h of MPICH 4.0 and 5.0, mpi.h of Open MPI
// 4.1 and 5.0.
type abi struct {
	name         string
	world        uintptr // MPI_COMM_WORLD
	byte, float  uintptr // MPI_BYTE, MPI_FLOAT
	sum          uintptr // MPI_SUM
	errorsReturn uintptr // MPI_ERRORS_RETURN
	infoNull     uintptr // MPI_INFO_NULL
	inPlace      uintptr // MPI_IN_PLACE
	statusIgnore uintptr // MPI_STATUS_IGNORE
	anySource    int32   // MPI_ANY_SOURCE
	typeShared   int32   // MPI_COMM_TYPE_SHARED
	threadLevels [4]int32
	intHandles   bool // handles are int, else as wide as pointers
}

var (
	standard = abi{
		name: "standard", world: 0x101, byte: 0x247, float: 0x210, sum: 0x21, errorsReturn: 0x143, infoNull: 0x130,
		inPlace: 1, statusIgnore: 0, anySource: -1, typeShared: 221, threadLevels: [4]int32{0, 1024, 2048, 4096},
	}
	mpich = abi{
		name: "mpich", world: 0x44000000, byte: 0x4c00010d, float: 0x4c00040a, sum: 0x58000003, errorsReturn: 0x54000001, infoNull: 0x1c000000,
		inPlace: ^uintptr(0), statusIgnore: 1, anySource: -2, typeShared: 1, threadLevels: [4]int32{0, 1, 2, 3}, intHandles: true,
	}
	openmpi = abi{ // handles are addresses of symbols, see detect
		name: "openmpi", inPlace: 1, statusIgnore: 0, anySource: -1, typeShared: 0, threadLevels: [4]int32{0, 1, 2, 3},
	}
)

// detect returns the interface of a library from its path and its symbols. symbol
// returns 0 for one that is not there.
func detect(path string, symbol func(name string) uintptr) (abi, error) {
	file := filepath.Base(path)
	switch {
	case symbol("ompi_mpi_comm_world") != 0:
		a := openmpi
		for name, to := range map[string]*uintptr{
			"ompi_mpi_comm_world": &a.world, "ompi_mpi_byte": &a.byte, "ompi_mpi_float": &a.float,
			"ompi_mpi_op_sum": &a.sum, "ompi_mpi_errors_return": &a.errorsReturn, "ompi_mpi_info_null": &a.infoNull,
		} {
			if *to = symbol(name); *to == 0 {
				return abi{}, fmt.Errorf("%s has ompi_mpi_comm_world, and no %s", path, name)
			}
		}
		return a, nil
	case strings.Contains(file, "mpi_abi"):
		return standard, nil
	case symbol("MPIR_Err_return_comm") != 0 || symbol("MPIX_Grequest_start") != 0 || strings.Contains(file, ".12"):
		return mpich, nil
	}
	return abi{}, fmt.Errorf("%s has an unknown binary interface: neither Open MPI's, nor libmpi_abi, nor libmpi.so.12 (MPICH, Intel MPI)", path)
}
