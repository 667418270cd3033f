/* The guest's agent, as bytes. */
	.section .rodata
	.global vm_guest_start, vm_guest_end
	.hidden vm_guest_start, vm_guest_end
vm_guest_start:
	.incbin VM_GUEST_FILE
vm_guest_end:
	.section .note.GNU-stack, "", %progbits
