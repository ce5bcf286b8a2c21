//! The declaration of a probed function, from the CUDA tables or from the debug information of its file.

use std::fmt;
use std::sync::Arc;

use crate::catalog::debug_info;
use crate::types::type_ref::TypeRef;

/// The declaration of a function.
#[derive(Clone, Debug)]
pub enum FunctionDeclaration {
    /// In the CUDA tables.
    Cuda(&'static cuda::Signature),
    /// In the file's debug information.
    Debug(Arc<debug_info::Function>),
}

impl FunctionDeclaration {
    /// Names and types of the parameters, in order.
    pub fn params(&self) -> Vec<(&str, TypeRef)> {
        match self {
            FunctionDeclaration::Cuda(known) => {
                known.params.iter().map(|p| (p.name, TypeRef::Cuda(p.ty))).collect()
            }
            FunctionDeclaration::Debug(function) => {
                function.params.iter().map(|p| (p.name.as_str(), TypeRef::Debug(p.ty))).collect()
            }
        }
    }

    /// Number and type of the parameter with this name.
    pub fn param(&self, name: &str) -> Option<(usize, TypeRef)> {
        let params = self.params().into_iter().enumerate();
        params
            .map(|(at, (known, ty))| (known, at, ty))
            .find(|(known, ..)| *known == name)
            .map(|(_, at, ty)| (at, ty))
    }

    /// The type of the result.
    pub fn ret(&self) -> TypeRef {
        match self {
            FunctionDeclaration::Cuda(known) => TypeRef::Cuda(known.ret),
            FunctionDeclaration::Debug(function) => function.ret.map_or(TypeRef::Void, TypeRef::Debug),
        }
    }

    /// The row of the CUDA tables.
    pub fn cuda(&self) -> Option<&'static cuda::Signature> {
        match self {
            FunctionDeclaration::Cuda(known) => Some(known),
            FunctionDeclaration::Debug(_) => None,
        }
    }

    /// Whether the caller passes the address of the result, whatever its type is.
    pub fn is_hidden(&self) -> bool {
        matches!(self, FunctionDeclaration::Debug(function) if function.hidden)
    }

    /// The parameter from which on locations of arguments are unknown, and the reason.
    pub fn unsure(&self) -> Option<&debug_info::Unsure> {
        match self {
            FunctionDeclaration::Cuda(_) => None,
            FunctionDeclaration::Debug(function) => function.unsure.as_ref(),
        }
    }

    /// Whether it returns a result code of CUDA.
    pub fn returns_code(&self) -> bool {
        self.cuda().is_some_and(|known| matches!(cuda::ty(known.ret).kind, cuda::Kind::Enum(_)))
    }
}

/// As C declares it.
impl fmt::Display for FunctionDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionDeclaration::Cuda(known) => known.fmt(f),
            FunctionDeclaration::Debug(function) => f.write_str(&function.declared),
        }
    }
}
