"""Wire formats that clients speak, one file each: schema in, schema out, error shape. No dialect knows another."""
