mod books;
mod broken;
mod named;
mod plain;
mod random;
